"""What definitions are called, and what the server and the loops say of them to each other."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.conditions import get_condition
from corral.api.kind import at

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "CustomResourceDefinition"
PLURAL: Final = "customresourcedefinitions"
STORED: Final = f"{PLURAL}.{GROUP}"
"""The name under which definitions are stored."""

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until the last object of its kind is gone."""

NAMES_ACCEPTED: Final = "NamesAccepted"
ESTABLISHED: Final = "Established"
TERMINATING: Final = "Terminating"
CONFORMANT: Final = "KubernetesAPIApprovalPolicyConformant"

APPROVED: Final = "api-approved.kubernetes.io"
"""Annotation of definitions in Kubernetes' own groups: where that was approved, or why not."""
BYPASSED: Final = "unapproved"
"""How it begins where nobody has approved."""

BUILT_IN: Final = "corral.dev/built-in"
"""Annotation of definitions that tell of kinds which the server has by itself."""
KEEPER: Final = "system:kube-controller-manager"
"""The user in whose name the loop that keeps definitions writes."""


def is_protected(group: str) -> bool:
    """Whether a group is one of the Kubernetes community's."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def holds(definition: Mapping[str, Any], condition: str) -> bool:
    """Whether a condition of a definition is true."""
    found = get_condition(at(dict(definition), "status", "conditions"), condition)
    return found is not None and found.get("status") == "True"


def is_built_in(definition: Mapping[str, Any]) -> bool:
    """Whether it tells of a kind that the server has by itself."""
    return BUILT_IN in (at(dict(definition), "metadata", "annotations") or {})
