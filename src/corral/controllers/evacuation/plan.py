"""The VMIs that are to leave their node by a migration (KubeVirt's evacuation.go).  Pure."""

from collections.abc import Iterable
from typing import Final

from lightkube.models.core_v1 import Node

from corral.api.kinds.kubevirt.migration import (
    CRITICAL,
    DESCHEDULER,
    EVACUATION,
    EVICTION_SOURCE,
    MAINTENANCE,
    PENDING,
    SCHEDULED,
    SCHEDULING,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.vmi.live_migration import BY_MIGRATION, is_live_migratable
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.reconcile.objects import is_being_deleted

_NOT_BEGUN: Final = frozenset({"", PENDING, SCHEDULING, SCHEDULED})


def is_to_leave(vmi: VirtualMachineInstance, node: Node | None, taint: str) -> bool:
    """Return whether a VMI is to leave its node: an eviction marked it, or the node is drained.

    ``node`` is the VMI's node, ``taint`` the key of the taint of drained nodes.
    """
    marked = vmi.status.evacuation_node_name
    return (bool(marked) and marked == vmi.status.node_name) or is_drained(node, taint)


def is_drained(node: Node | None, taint: str) -> bool:
    """Return whether a node has the taint of drained nodes."""
    taints = (node.spec and node.spec.taints) if node is not None else None
    return any((each.key, each.effect) == (taint, "NoSchedule") for each in taints or ())


def may_migrate(
    vmi: VirtualMachineInstance,
    migrations: Iterable[VirtualMachineInstanceMigration],
    default: str | None = None,
) -> bool:
    """Return whether a migration of a VMI is to be created; ``migrations`` are its own so far.

    ``default``: the eviction strategy of VMIs that have none.
    """
    return (
        (vmi.spec.eviction_strategy or default) in BY_MIGRATION
        and not vmi.is_final
        and not is_being_deleted(vmi)
        and is_live_migratable(vmi)
        and all(each.is_final for each in migrations)
    )


def to_cancel(
    vmi: VirtualMachineInstance, migrations: Iterable[VirtualMachineInstanceMigration]
) -> list[VirtualMachineInstanceMigration]:
    """Return the evacuations of a VMI that need not leave its node any more, and have not begun.

    ``migrations`` are its own.  Those that were handed to the nodes go on, as in KubeVirt.
    """
    return [
        each
        for each in migrations
        if each.metadata.annotations.get(EVACUATION) == vmi.status.node_name
        and each.status.phase in _NOT_BEGUN
        and each.state_in(vmi) is None
        and not is_being_deleted(each)
    ]


def migration_of(vmi: VirtualMachineInstance) -> Document:
    """Return the migration by which a VMI leaves its node."""
    descheduled = vmi.metadata.annotations.get(EVICTION_SOURCE) == DESCHEDULER
    return {
        "metadata": {
            "generateName": "kubevirt-evacuation-",
            "namespace": vmi.metadata.namespace,
            "annotations": {EVACUATION: vmi.status.node_name},
        },
        "spec": {
            "vmiName": vmi.metadata.name,
            "priority": MAINTENANCE if descheduled else CRITICAL,
        },
    }
