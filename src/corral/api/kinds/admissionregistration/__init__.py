"""Dynamic admission: webhooks and policies (admissionregistration.k8s.io)."""

from corral.api.kinds.admissionregistration.policies import BINDING, POLICY
from corral.api.kinds.admissionregistration.webhooks import MUTATING, VALIDATING

__all__ = ["BINDING", "KINDS", "MUTATING", "POLICY", "VALIDATING"]

KINDS = (MUTATING, VALIDATING, POLICY, BINDING)
