"""The audit log: who asked for what, when, and what came of it (audit.k8s.io/v1).

``policy`` says of which requests how much is told, ``event`` what is told, ``strangers`` how much
where nobody knows who asks, and ``log`` is the file; all meet in ``Audit``.
"""

from corral.server.audit.audit import Audit, Audited, told_lost
from corral.server.audit.log import AuditError, Log
from corral.server.audit.policy import DEFAULT, Policy, PolicyError

__all__ = ["DEFAULT", "Audit", "AuditError", "Audited", "Log", "Policy", "PolicyError", "told_lost"]
