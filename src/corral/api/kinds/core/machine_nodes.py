"""Nodes that run machines alone, beside nodes with a container runtime: their label and taint.

The label is KubeVirt's, by which its launcher pods find nodes; the taint keeps other pods away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.api.object import Document

MACHINES: Final = "corral.dev/machines"
SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of nodes that start machines."""
TAINT: Final[Document] = {"key": MACHINES, "effect": "NoSchedule"}
TOLERATION: Final[Document] = {"key": MACHINES, "operator": "Exists"}


@dataclass(frozen=True, slots=True)
class Placement:
    """What launcher pods have beyond what their VMIs say, so that they find their nodes."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Document, ...] = ()


ANYWHERE: Final = Placement()
"""For clusters all of whose nodes run machines."""
MACHINE_NODES: Final = Placement({SCHEDULABLE: "true"}, (TOLERATION,))
"""For clusters that have other nodes as well."""
