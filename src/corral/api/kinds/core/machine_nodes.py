"""Nodes that run machines alone, beside nodes with a container runtime: their label and taint.

The label is KubeVirt's, by which its launcher pods find nodes; the taint keeps other pods away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from corral.api.object import Document

MACHINES: Final = "corral.dev/machines"
SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of nodes that start machines."""
TAINT: Final[Document] = {"key": MACHINES, "effect": "NoSchedule"}
TOLERATION: Final[Document] = {"key": MACHINES, "operator": "Exists"}


RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 107,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of a container that every level of Pod Security admits; 107 is KubeVirt's qemu.
Nothing runs in these containers: machines have the users and filters that their node gives them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Parts of launcher pods beyond those from their VMIs, for the scheduler of a Kubernetes.

    node_selector, tolerations: by which they find their nodes.
    security_context: that of each container.
    names_references: whether a pod names the Secrets and ConfigMaps of its VMI as volumes:
    Kubernetes' Node authorizer lets the pod's node read no others.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Document, ...] = ()
    security_context: Mapping[str, Any] = field(default_factory=dict)
    names_references: bool = False


ANYWHERE: Final = Placement()
"""For clusters all of whose nodes run machines."""
MACHINE_NODES: Final = Placement(
    {SCHEDULABLE: "true"}, (TOLERATION,), RESTRICTED, names_references=True
)
"""For clusters that have other nodes as well."""
