"""Names, conditions and annotations of CustomResourceDefinitions."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.kind import at

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "CustomResourceDefinition"
PLURAL: Final = "customresourcedefinitions"
RESOURCE: Final = f"{PLURAL}.{GROUP}"
"""The resource of definitions, under which they are stored."""

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer of a definition until the last object of its kind is deleted."""

NAMES_ACCEPTED: Final = "NamesAccepted"
ESTABLISHED: Final = "Established"
TERMINATING: Final = "Terminating"
CONFORMANT: Final = "KubernetesAPIApprovalPolicyConformant"

APPROVED: Final = "api-approved.kubernetes.io"
"""Annotation of definitions in protected groups: URL of the approval, or why there is none."""
BYPASSED: Final = "unapproved"
"""Prefix of that annotation if the kind is not approved."""

BUILT_IN: Final = "corral.dev/built-in"
"""Annotation of the definitions of built-in kinds."""
CONTROLLER_USER: Final = "system:kube-controller-manager"
"""The user of the controller that writes definitions of built-in kinds."""


def is_protected(group: str) -> bool:
    """Return whether a group is one of the Kubernetes community."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def is_built_in(definition: Mapping[str, Any]) -> bool:
    """Return whether a definition is that of a built-in kind."""
    return BUILT_IN in (at(dict(definition), "metadata", "annotations") or {})
