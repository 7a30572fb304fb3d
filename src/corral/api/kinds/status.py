"""What is known of a machine: everything below a VirtualMachineInstance's ``status``."""

import msgspec

from corral.api.kinds.domain import Machine
from corral.api.kinds.limits import Uint32
from corral.api.object import AnyFields, Condition, Quantity, Struct, Time


class PhaseTransition(Struct, kw_only=True):
    """When a phase was entered.

    phase: the phase.
    phase_transition_timestamp: when it was entered.
    """

    phase: str = ""
    phase_transition_timestamp: Time | None = None


class InterfaceStatus(Struct, kw_only=True):
    """What is known of a network card.

    ip_address: the first of ip_addresses.
    mac: hardware address.
    name: the network that it joins; empty for one that only the guest knows.
    ip_addresses: every address.
    pod_interface_name: its name in the pod.
    interface_name: its name in the guest.
    info_source: who said so: domain, guest-agent, multus-status.
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
    """What the guest agent says of the operating system."""

    name: str = ""
    kernel_release: str = ""
    version: str = ""
    pretty_name: str = ""
    version_id: str = ""
    kernel_version: str = ""
    machine: str = ""
    id: str = ""


class CpuTopology(Struct, kw_only=True):
    """Processors that the guest has at present: sockets x cores x threads."""

    cores: Uint32 = 0
    sockets: Uint32 = 0
    threads: Uint32 = 0


class MemoryStatus(Struct, kw_only=True):
    """Memory of the guest.

    guest_at_boot: what it started with.
    guest_current: what it has.
    guest_requested: what was asked for since.
    """

    guest_at_boot: Quantity | None = None
    guest_current: Quantity | None = None
    guest_requested: Quantity | None = None


class ClaimInfo(Struct, kw_only=True):
    """What a volume's claim is like."""

    claim_name: str = ""
    access_modes: list[str] = []
    volume_mode: str | None = None
    capacity: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    preallocated: bool = False
    filesystem_overhead: str | None = None


class HotplugVolumeStatus(Struct, kw_only=True):
    """The pod that brought a volume to the node."""

    attach_pod_name: str = ""
    attach_pod_uid: str = msgspec.field(default="", name="attachPodUID")


class MemoryDumpStatus(Struct, kw_only=True):
    """A dump of the guest's memory."""

    start_timestamp: Time | None = None
    end_timestamp: Time | None = None
    claim_name: str = ""
    target_file_name: str = ""


class Checksum(Struct, kw_only=True):
    """The checksum of an image's content."""

    checksum: Uint32 = 0


class KernelBootStatus(Struct, kw_only=True):
    """What the kernel's image holds."""

    kernel_info: Checksum | None = None
    initrd_info: Checksum | None = None


class VolumeStatus(Struct, kw_only=True):
    """What is known of a volume.

    name: the volume.
    target: the device as the guest names it, e.g. vda.
    phase: how far adding it has come.
    reason: why, in one word.
    message: why.
    size: bytes.
    persistent_volume_claim_info: what its claim is like.
    hotplug_volume: the pod that brought it.
    memory_dump_volume: the dump that it holds.
    container_disk_volume: what its image holds.
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
    """A volume that changes its claim."""

    volume_name: str
    source_pvc_info: ClaimInfo | None = msgspec.field(default=None, name="sourcePVCInfo")
    destination_pvc_info: ClaimInfo | None = msgspec.field(default=None, name="destinationPVCInfo")


class TopologyHints(Struct, kw_only=True):
    """What a target node of a migration must offer."""

    tsc_frequency: int | None = None


class ChangedBlockTracking(Struct, kw_only=True):
    """Whether changed blocks are noted for backups."""

    state: str = ""
    backup_status: AnyFields | None = None


class MigrationSide(Struct, kw_only=True):
    """What both sides of a migration tell of themselves."""

    node: str = ""
    pod: str = ""
    migration_uid: str = msgspec.field(default="", name="migrationUID")
    domain_name: str | None = None
    domain_namespace: str | None = None
    sync_address: str | None = None
    persistent_state_pvc_name: str | None = msgspec.field(
        default=None, name="persistentStatePVCName"
    )
    selinux_context: str = ""
    virtual_machine_instance_uid: str | None = msgspec.field(
        default=None, name="virtualMachineInstanceUID"
    )


class MigrationSource(MigrationSide, kw_only=True):
    """The side that the machine leaves."""

    node_selectors: dict[str, str] = {}


class MigrationTarget(MigrationSide, kw_only=True):
    """The side that the machine comes to."""

    domain_ready_timestamp: Time | None = None
    domain_detected: bool = False
    node_address: str | None = None
    direct_migration_node_ports: dict[str, int] = {}
    attachment_pod_uid: str | None = msgspec.field(default=None, name="attachmentPodUID")
    cpu_set: list[int] = []
    node_topology: str | None = None


class MigrationState(Struct, kw_only=True):
    """The latest live migration."""

    start_timestamp: Time | None = None
    end_timestamp: Time | None = None
    target_node_domain_ready_timestamp: Time | None = None
    target_node_domain_detected: bool = False
    target_node_address: str = ""
    target_direct_migration_node_ports: dict[str, int] = {}
    target_node: str = ""
    target_pod: str = ""
    target_attachment_pod_uid: str = msgspec.field(default="", name="targetAttachmentPodUID")
    source_node: str = ""
    source_pod: str = ""
    completed: bool = False
    failed: bool = False
    abort_requested: bool = False
    abort_status: str = ""
    failure_reason: str = ""
    migration_uid: str = ""
    mode: str = ""
    migration_policy_name: str | None = None
    migration_configuration: AnyFields | None = None
    target_cpu_set: list[int] = msgspec.field(default_factory=list, name="targetCPUSet")
    target_node_topology: str = ""
    source_persistent_state_pvc_name: str = msgspec.field(
        default="", name="sourcePersistentStatePVCName"
    )
    target_persistent_state_pvc_name: str = msgspec.field(
        default="", name="targetPersistentStatePVCName"
    )
    source_state: MigrationSource | None = None
    target_state: MigrationTarget | None = None
    migration_network_type: str = ""
    target_memory_overhead: Quantity | None = None


class Status(Struct, kw_only=True):
    """What is known of the machine.

    phase: Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown.
    reason: why, in one word.
    conditions: Ready, Synchronized, Paused, AgentConnected and others.
    node_name: the node that it runs on.
    phase_transition_timestamps: when each phase was entered.
    interfaces: its network cards and their addresses.
    guest_os_info: what the guest agent says of the operating system.
    volume_status: its volumes.
    active_pods: uid of each pod that runs it, and the pod's node.
    launcher_container_image_version: version of what runs it.
    machine: the board that it got.
    current_cpu_topology: processors at present.
    memory: memory at present.
    runtime_user: user id that QEMU runs as.
    qos_class: quality of service of its pod.
    migration_state: the latest live migration.
    migration_method: how it would migrate: LiveMigration or BlockMigration.
    migration_transport: how a migration is carried: Unix.
    evacuation_node_name: the node that it is asked to leave.
    fs_freeze_status: frozen while the guest's file systems are.
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
