"""Nodes that run machines alone, beside nodes with a container runtime: their label and taint.

The label is KubeVirt's, by which its launcher pods find nodes; the taint keeps other pods away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_addresses import kubelet_port
from corral.api.object import Document

MACHINES: Final = "corral.dev/machines"
SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of nodes that start machines."""
LIVE_MIGRATION_LABEL: Final = "corral.dev/live-migration"
LIVE_MIGRATION: Final = "1"
"""Label of nodes whose machines migrate to nodes of other hosts with the same value: the version of
what their agents say to each other."""
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


def can_migrate_to(source: Node | None, target: Node) -> bool:
    """Return whether machines migrate from one node to another; the source may be gone."""
    if source is not None and not kubelet_port(source) and not kubelet_port(target):
        return True  # both are on the API server's host
    return source is not None and _moves(source) and _moves(target)


def _moves(node: Node) -> bool:
    labels = (node.metadata and node.metadata.labels) or {}
    return labels.get(LIVE_MIGRATION_LABEL) == LIVE_MIGRATION


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
