"""The audit log: who asked for what, when, and what came of it (audit.k8s.io/v1).

``audit_policy`` says of which requests how much is told, ``audit_event`` what is told,
``anonymous_quota`` how much where nobody knows who asks, and ``audit_log`` is the file; all meet in
``Audit``.
"""

from corral.server.audit.audit import Audit, Audited, told_lost
from corral.server.audit.audit_log import AuditError, Log
from corral.server.audit.audit_policy import DEFAULT, Policy, PolicyError

__all__ = ["DEFAULT", "Audit", "AuditError", "Audited", "Log", "Policy", "PolicyError", "told_lost"]
