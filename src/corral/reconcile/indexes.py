"""Index functions that several controllers look objects up by."""

import msgspec
from lightkube.models.core_v1 import PersistentVolume, Pod

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.storage.common import class_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.objects import controller_uid, key_of


def by_controller(item: msgspec.Struct) -> tuple[str]:
    """Index objects by the uid of their controller, empty for those without one."""
    return (controller_uid(item),)


def by_namespace(item: msgspec.Struct) -> tuple[str]:
    """Index objects by their namespace."""
    return (key_of(item).namespace,)


def by_node(pod: Pod) -> tuple[str]:
    """Index pods by the name of their node, empty for those that are not scheduled."""
    return ((pod.spec and pod.spec.nodeName) or "",)


def by_vmi_node(vmi: VirtualMachineInstance) -> tuple[str]:
    """Index VMIs by the name of their node, empty for those without one."""
    return (vmi.status.node_name,)


def by_vmi(migration: VirtualMachineInstanceMigration) -> tuple[str]:
    """Index migrations by the key of their VMI."""
    return (str(migration.vmi_key),)


def by_source(checkpoint: VirtualMachineCheckpoint) -> tuple[str]:
    """Index checkpoints by the key of the VMI that they are made of."""
    return (str(checkpoint.source_key),)


def by_class(volume: PersistentVolume) -> tuple[str]:
    """Index volumes by the name of their storage class, empty for those without one."""
    return (class_name(volume) or "",)
