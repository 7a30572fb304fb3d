"""The audit log of requests and their responses (audit.k8s.io/v1).

``audit_policy`` selects the level of each request, ``audit_event`` builds its events,
``anonymous_quota`` bounds those of unauthenticated clients, and ``audit_log`` is the file;
``Audit`` joins them.
"""

from corral.server.audit.audit import Audit, Audited, lost_events_line
from corral.server.audit.audit_log import AuditError, Log
from corral.server.audit.audit_policy import DEFAULT, Policy, PolicyError

__all__ = [
    "DEFAULT",
    "Audit",
    "AuditError",
    "Audited",
    "Log",
    "Policy",
    "PolicyError",
    "lost_events_line",
]
