"""The ``status`` of a VirtualMachineInstance."""

import msgspec

from corral.api.kinds.vmi.domain import Machine
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.schema_bounds import Uint32
from corral.api.object import AnyFields, Condition, Quantity, Struct, Time


class PhaseTransition(Struct, kw_only=True):
    """The time at which a phase was entered.

    phase: the phase.
    phase_transition_timestamp: when it was entered.
    """

    phase: str = ""
    phase_transition_timestamp: Time | None = None


class InterfaceStatus(Struct, kw_only=True):
    """Status of a network interface.

    ip_address: the first of ip_addresses.
    mac: hardware address.
    name: the network that it joins; empty for an interface that only the guest agent reports.
    ip_addresses: every address.
    pod_interface_name: its name in the pod.
    interface_name: its name in the guest.
    info_source: source of this: domain, guest-agent, multus-status.
    queue_count: number of queues.
    link_state: up or down.
    """

    ip_address: str = ""
    mac: str = ""
    name: str = ""
    ip_addresses: list[str] = []
    pod_interface_name: str = ""
    interface_name: str = ""
    info_source: str = ""
    queue_count: int = 0
    link_state: str = ""


class GuestOsInfo(Struct, kw_only=True):
    """The operating system, as the guest agent reports it.

    name: the system's name, such as Ubuntu.
    kernel_release: the kernel's release, as uname -r has it.
    version: the system's version.
    pretty_name: name and version as people read them.
    version_id: the version alone, such as 22.04.
    kernel_version: when and how the kernel was built, as uname -v has it.
    machine: the processor's architecture, such as x86_64.
    id: the system's name for programs, such as ubuntu.
    """

    name: str = ""
    kernel_release: str = ""
    version: str = ""
    pretty_name: str = ""
    version_id: str = ""
    kernel_version: str = ""
    machine: str = ""
    id: str = ""


class CpuTopology(Struct, kw_only=True):
    """Processors that the guest has at present: sockets x cores x threads.

    cores: cores of a socket.
    sockets: sockets of the machine.
    threads: threads of a core.
    """

    cores: Uint32 = 0
    sockets: Uint32 = 0
    threads: Uint32 = 0


class MemoryStatus(Struct, kw_only=True):
    """Memory of the guest.

    guest_at_boot: memory at boot.
    guest_current: memory at present.
    guest_requested: memory requested since.
    """

    guest_at_boot: Quantity | None = None
    guest_current: Quantity | None = None
    guest_requested: Quantity | None = None


class ClaimInfo(Struct, kw_only=True):
    """The claim of a volume.

    claim_name: the claim.
    access_modes: its access modes.
    volume_mode: Filesystem, or Block.
    capacity: capacity of its volume.
    requests: requested capacity.
    preallocated: whether all of its space was allocated beforehand.
    filesystem_overhead: the share of the space that the file system takes, such as 0.055.
    """

    claim_name: str = ""
    access_modes: list[str] = []
    volume_mode: str | None = None
    capacity: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    preallocated: bool = False
    filesystem_overhead: str | None = None


class HotplugVolumeStatus(Struct, kw_only=True):
    """The pod that brought a volume to the node.

    attach_pod_name: the pod's name.
    attach_pod_uid: the pod's uid.
    """

    attach_pod_name: str = ""
    attach_pod_uid: str = msgspec.field(default="", name="attachPodUID")


class MemoryDumpStatus(Struct, kw_only=True):
    """A dump of the guest's memory.

    start_timestamp: when it began.
    end_timestamp: when it was complete.
    claim_name: the claim that it is written to.
    target_file_name: its file in the claim.
    """

    start_timestamp: Time | None = None
    end_timestamp: Time | None = None
    claim_name: str = ""
    target_file_name: str = ""


class Checksum(Struct, kw_only=True):
    """The checksum of an image's content.

    checksum: CRC-32 of the content.
    """

    checksum: Uint32 = 0


class KernelBootStatus(Struct, kw_only=True):
    """Checksums of a kernel image.

    kernel_info: the kernel.
    initrd_info: the initial RAM disk.
    """

    kernel_info: Checksum | None = None
    initrd_info: Checksum | None = None


class VolumeStatus(Struct, kw_only=True):
    """Status of a volume.

    name: the volume.
    target: the device as the guest names it, e.g. vda.
    phase: progress of its hotplug.
    reason: reason of the phase, in one word.
    message: reason of the phase, for people.
    size: bytes.
    persistent_volume_claim_info: its claim.
    hotplug_volume: the pod that brought it.
    memory_dump_volume: the dump that it holds.
    container_disk_volume: checksum of its image.
    """

    name: str
    target: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    size: int = 0
    persistent_volume_claim_info: ClaimInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: MemoryDumpStatus | None = None
    container_disk_volume: Checksum | None = None


class MigratedVolume(Struct, kw_only=True):
    """A volume that migrates to another claim.

    volume_name: the volume.
    source_pvc_info: the source.
    destination_pvc_info: the destination.
    """

    volume_name: str
    source_pvc_info: ClaimInfo | None = msgspec.field(default=None, name="sourcePVCInfo")
    destination_pvc_info: ClaimInfo | None = msgspec.field(default=None, name="destinationPVCInfo")


class TopologyHints(Struct, kw_only=True):
    """Requirements on the target node of a migration.

    tsc_frequency: frequency of the time stamp counter in Hz.
    """

    tsc_frequency: int | None = None


class ChangedBlockTracking(Struct, kw_only=True):
    """Changed block tracking, for backups.

    state: progress of turning it on or off.
    backup_status: the latest backup.
    """

    state: str = ""
    backup_status: AnyFields | None = None


class Status(Struct, kw_only=True):
    """Observed state of the VMI.

    phase: Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown.
    reason: reason of the phase, in one word.
    conditions: Ready, Synchronized, Paused, AgentConnected and others.
    node_name: the node that it runs on.
    phase_transition_timestamps: when each phase was entered.
    interfaces: its network cards and their addresses.
    guest_os_info: the operating system, as the guest agent reports it.
    volume_status: its volumes.
    active_pods: uid of each pod that runs it, and the pod's node.
    launcher_container_image_version: version of the launcher.
    machine: its machine type.
    current_cpu_topology: processors at present: sockets x cores x threads.
    memory: memory at present.
    runtime_user: user id that QEMU runs as.
    qos_class: quality of service of its pod.
    migration_state: the latest live migration.
    migration_method: how it would migrate: LiveMigration or BlockMigration.
    migration_transport: transport of a migration: Unix.
    evacuation_node_name: the node from which it shall be evacuated.
    fs_freeze_status: frozen while the guest's file systems are.
    kernel_boot_status: checksums of its kernel image.
    topology_hints: requirements on the target node of a migration.
    virtual_machine_revision_name: ControllerRevision of the VirtualMachine that made it.
    vsock_cid: its VSOCK context ID.
    selinux_context: the label under which QEMU runs.
    migrated_volumes: volumes that migrate to other claims.
    changed_block_tracking: changed block tracking, for backups.
    """

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] = []
    node_name: str = ""
    phase_transition_timestamps: list[PhaseTransition] = []
    interfaces: list[InterfaceStatus] = []
    guest_os_info: GuestOsInfo | None = msgspec.field(default=None, name="guestOSInfo")
    volume_status: list[VolumeStatus] = []
    active_pods: dict[str, str] = {}
    launcher_container_image_version: str = ""
    machine: Machine | None = None
    current_cpu_topology: CpuTopology | None = msgspec.field(
        default=None, name="currentCPUTopology"
    )
    memory: MemoryStatus | None = None
    runtime_user: int = 0
    qos_class: str | None = None
    migration_state: MigrationState | None = None
    migration_method: str = ""
    migration_transport: str = ""
    evacuation_node_name: str = ""
    fs_freeze_status: str = ""
    kernel_boot_status: KernelBootStatus | None = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: str = ""
    vsock_cid: Uint32 | None = msgspec.field(default=None, name="VSOCKCID")
    selinux_context: str = ""
    migrated_volumes: list[MigratedVolume] = []
    changed_block_tracking: ChangedBlockTracking | None = None
