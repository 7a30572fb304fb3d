"""The condition LiveMigratable of a VMI, and the method of its migrations.

The rules, their order and their words are those of virt-handler (calculateLiveMigrationCondition);
the first obstacle counts.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from corral.api.kinds.vmi.derived import processors
from corral.api.kinds.vmi.launcher import UNRECORDED
from corral.api.kinds.vmi.live_update import boot_memory, max_memory_bytes, max_sockets
from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.status import VolumeStatus
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.api.object import Condition

CONDITION: Final = "LiveMigratable"
BY_MIGRATION: Final = frozenset({"LiveMigrate", "LiveMigrateIfPossible"})
"""Eviction strategies by which a VMI that can migrate does so."""

BLOCK, LIVE = "BlockMigration", "LiveMigration"
"""Methods of migration: with a copy of disks, or of memory alone."""

_ALONE: Final = (
    "MigrationNotSupported",
    (
        "cannot migrate VMI: machines leave this host only with the network backends vxlan, "
        "wireguard and host-gw"
    ),
)
_LACKS_ROOM: Final = (
    "MigrationNotSupported",
    "cannot migrate VMI: an earlier corral has started it without room for maxSockets or maxGuest",
)
_INTERFACE: Final = "InterfaceNotLiveMigratable"
_DISKS: Final = "DisksNotLiveMigratable"
_BRIDGED_TOO: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
_TIED: Final = (
    "cannot migrate VMI which does not use masquerade or a migratable plugin to connect to the pod "
    "network"
)
_ALL_SHARED: Final = (
    "live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
)
_SHARED: Final = "ReadWriteMany"


def live_migratable(vmi: VirtualMachineInstance, *, alone: bool = False) -> Condition:
    """Return the condition LiveMigratable of a VMI; ``alone``: it can reach no other node."""
    reason, message = next(_obstacles(vmi, alone=alone), ("", ""))
    status = "False" if reason else "True"
    return Condition(type=CONDITION, status=status, reason=reason, message=message)


def is_live_migratable(vmi: VirtualMachineInstance) -> bool:
    """Return whether the condition LiveMigratable of a VMI is True."""
    return any(each.type == CONDITION and each.status == "True" for each in vmi.status.conditions)


def migration_method(vmi: VirtualMachineInstance) -> str:
    """Return the method by which a VMI migrates."""
    return BLOCK if any(_is_copied(vmi, volume) for volume in vmi.spec.volumes) else LIVE


def _obstacles(vmi: VirtualMachineInstance, *, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield the reason and the message of each obstacle to a migration, in KubeVirt's order."""
    if _is_tied(vmi):
        yield _INTERFACE, _TIED
    if alone:
        yield _ALONE
    if _lacks_room(vmi):
        yield _LACKS_ROOM
    statuses = {each.name: each for each in vmi.status.volume_status}
    for volume in vmi.spec.volumes:
        if message := _disk_obstacle(volume, statuses):
            yield _DISKS, message


def _lacks_room(vmi: VirtualMachineInstance) -> bool:
    """Report whether the target would have room for vCPUs or memory that the machine has not.

    No corral that does not record its launcher has added any.
    """
    domain = vmi.spec.domain
    unrecorded = vmi.status.launcher_container_image_version == UNRECORDED
    return unrecorded and (
        max_sockets(domain) > processors(domain).sockets
        or max_memory_bytes(domain) > boot_memory(vmi).rounded_up()
    )


def _disk_obstacle(volume: Volume, statuses: Mapping[str, VolumeStatus]) -> str:
    """Return why a volume cannot move with its machine; "" if it can."""
    info = statuses[volume.name].persistent_volume_claim_info if volume.name in statuses else None
    claim = "" if volume.ephemeral is not None else claims_of([volume]).get(volume.name, "")
    if claim and info is None:
        return f"cannot migrate VMI: Unable to determine if PVC {claim} is shared, {_ALL_SHARED}"
    if claim and info is not None and _SHARED not in info.access_modes:
        return f"cannot migrate VMI: PVC {claim} is not shared, {_ALL_SHARED}"
    if volume.host_disk is not None and not volume.host_disk.shared:
        return "cannot migrate VMI with non-shared HostDisk"
    return ""


def _is_copied(vmi: VirtualMachineInstance, volume: Volume) -> bool:
    """Report whether a volume is local to its node and written to, so that it is copied."""
    if volume.persistent_volume_claim or volume.data_volume or volume.host_disk:
        return False
    disks = [disk for disk in vmi.spec.domain.devices.disks if disk.name == volume.name]
    return not any(disk.cdrom is not None and disk.cdrom.readonly is not False for disk in disks)


def _is_tied(vmi: VirtualMachineInstance) -> bool:
    """Report whether the guest has the address of its pod, which could not move with it."""
    if _BRIDGED_TOO in vmi.metadata.annotations:
        return False
    pods = {network.name for network in vmi.spec.networks if network.pod is not None}
    cards = vmi.spec.domain.devices.interfaces
    return any(card.name in pods and not _is_portable(card) for card in cards)


def _is_portable(card: Interface) -> bool:
    return any(each is not None for each in (card.masquerade, card.passt_binding, card.binding))
