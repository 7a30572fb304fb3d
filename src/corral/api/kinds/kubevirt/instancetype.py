"""Instance types and preferences: processors, memory and devices by name.

KubeVirt's instancetype.kubevirt.io: an instance type settles what a VirtualMachine gets, a
preference what it likes where it does not say; each is of a namespace or of the whole cluster.
"""

from typing import Annotated, ClassVar

import msgspec

from corral.api.kinds.vmi.devices import Gpu, HostDevice, Rng, Tpm, VgpuOptions
from corral.api.kinds.vmi.disks import BlockSize
from corral.api.kinds.vmi.domain import CpuFeature, DiskIoThreads, Efi, Hugepages, Numa, Realtime
from corral.api.kinds.vmi.features import Apic, ClockUtc, FeatureState, Timer
from corral.api.kinds.vmi.schema_bounds import Uint32
from corral.api.object import AnyFields, Object, Quantity, Struct

GROUP = "instancetype.kubevirt.io"

Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]


class InstancetypeCpu(Struct, kw_only=True):
    """Processors of an instance type.

    guest: how many the guest gets.
    model: as in a machine's spec.
    dedicated_cpu_placement: whether each has a real one for itself.
    numa: how the guest's memory is divided.
    isolate_emulator_thread: whether QEMU's own work has a processor for itself.
    realtime: settings for low latency.
    max_sockets: sockets that can be reached while the machine runs.
    """

    guest: Uint32
    model: str | None = None
    dedicated_cpu_placement: bool | None = msgspec.field(default=None, name="dedicatedCPUPlacement")
    numa: Numa | None = None
    isolate_emulator_thread: bool | None = None
    realtime: Realtime | None = None
    max_sockets: Uint32 | None = None


class InstancetypeMemory(Struct, kw_only=True):
    """Memory of an instance type.

    guest: what the guest sees.
    hugepages: memory in large pages.
    overcommit_percent: by how much less than the guest sees is asked of the node.
    max_guest: what can be reached while the machine runs.
    """

    guest: Quantity
    hugepages: Hugepages | None = None
    overcommit_percent: Percentage = 0
    max_guest: Quantity | None = None


class InstancetypeSpec(Struct, kw_only=True):
    """What machines of the type get; a VirtualMachine may not say any of it itself.

    cpu: processors.
    memory: memory.
    node_selector: labels that the node must have.
    scheduler_name: who finds the node.
    gpus: GPUs that are passed through.
    host_devices: devices of the node that are passed through.
    io_threads_policy: shared, auto or supplementalPool.
    io_threads: threads that serve the disks.
    launch_security: a guest whose memory its host cannot read.
    annotations: annotations of the machine.
    """

    cpu: InstancetypeCpu
    memory: InstancetypeMemory
    node_selector: dict[str, str] = {}
    scheduler_name: str = ""
    gpus: list[Gpu] = []
    host_devices: list[HostDevice] = []
    io_threads_policy: str | None = None
    io_threads: DiskIoThreads | None = None
    launch_security: AnyFields | None = None
    annotations: dict[str, str] = {}


class SpreadOptions(Struct, kw_only=True):
    """How processors are spread.

    across: SocketsCores (the default), CoresThreads or SocketsCoresThreads.
    ratio: how many of the smaller unit to one of the larger, 2 by default.
    """

    across: str | None = None
    ratio: Uint32 | None = None


class PreferredCpu(Struct, kw_only=True):
    """Processors that are preferred.

    preferred_cpu_topology: sockets (the default), cores, threads, spread or any.
    spread_options: how they are spread.
    preferred_cpu_features: features that are added or removed.
    """

    preferred_cpu_topology: str | None = msgspec.field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions | None = None
    preferred_cpu_features: list[CpuFeature] = msgspec.field(
        default_factory=list, name="preferredCPUFeatures"
    )


class PreferredDevices(Struct, kw_only=True):
    """Devices that are preferred: each field is for the device's field that its name ends in.

    preferred_autoattach_graphics_device: whether there is a graphics device that nobody asked for.
    preferred_autoattach_mem_balloon: whether there is a memory balloon that nobody asked for.
    preferred_autoattach_pod_interface: whether there is a network card on the pod's network that
        nobody asked for.
    preferred_autoattach_serial_console: whether there is a serial console that nobody asked for.
    preferred_autoattach_input_device: whether there is a tablet that nobody asked for.
    preferred_disable_hotplug: whether nothing may be plugged in while it runs.
    preferred_use_virtio_transitional: whether virtio devices serve guests that know old virtio
        alone.
    preferred_block_multi_queue: whether disks have a queue for each processor.
    preferred_network_interface_multi_queue: whether network cards have a queue for each processor.
    preferred_sound_model: the model of the sound card.
    preferred_rng: the source of random numbers.
    preferred_tpm: the trusted platform module.
    preferred_virtual_gpu_options: how virtual graphics processors are shown.
    preferred_disk_bus: the bus of disks.
    preferred_cdrom_bus: the bus of CD-ROM drives.
    preferred_lun_bus: the bus of LUNs.
    preferred_disk_block_size: the size of disks' blocks.
    preferred_disk_cache: how writes to disks are cached.
    preferred_disk_io: how disks are read and written: native, threads or default.
    preferred_disk_dedicated_io_thread: whether each disk has a thread of its own.
    preferred_input_bus: the bus of input devices.
    preferred_input_type: the type of input devices.
    preferred_interface_model: the model of network cards.
    preferred_interface_masquerade: whether network cards are behind address translation.
    preferred_panic_device_model: the model of the device that tells of the guest's panic.
    """

    preferred_autoattach_graphics_device: bool | None = None
    preferred_autoattach_mem_balloon: bool | None = None
    preferred_autoattach_pod_interface: bool | None = None
    preferred_autoattach_serial_console: bool | None = None
    preferred_autoattach_input_device: bool | None = None
    preferred_disable_hotplug: bool | None = None
    preferred_use_virtio_transitional: bool | None = None
    preferred_block_multi_queue: bool | None = None
    preferred_network_interface_multi_queue: bool | None = None
    preferred_sound_model: str = ""
    preferred_rng: Rng | None = None
    preferred_tpm: Tpm | None = msgspec.field(default=None, name="preferredTPM")
    preferred_virtual_gpu_options: VgpuOptions | None = msgspec.field(
        default=None, name="preferredVirtualGPUOptions"
    )
    preferred_disk_bus: str = ""
    preferred_cdrom_bus: str = ""
    preferred_lun_bus: str = ""
    preferred_disk_block_size: BlockSize | None = None
    preferred_disk_cache: str = ""
    preferred_disk_io: str = msgspec.field(default="", name="preferredDiskIO")
    preferred_disk_dedicated_io_thread: bool | None = None
    preferred_input_bus: str = ""
    preferred_input_type: str = ""
    preferred_interface_model: str = ""
    preferred_interface_masquerade: AnyFields | None = None
    preferred_panic_device_model: str | None = None


class PreferredFeatures(Struct, kw_only=True):
    """Features of the machine that are preferred.

    preferred_acpi: power management by ACPI.
    preferred_apic: the interrupt controller.
    preferred_hyperv: what eases running Windows.
    preferred_kvm: what eases running on KVM.
    preferred_pvspinlock: locks that know of processors that do not run.
    preferred_smm: the mode in which firmware protects itself.
    """

    preferred_acpi: FeatureState | None = None
    preferred_apic: Apic | None = None
    preferred_hyperv: AnyFields | None = None
    preferred_kvm: AnyFields | None = None
    preferred_pvspinlock: FeatureState | None = None
    preferred_smm: FeatureState | None = None


class PreferredFirmware(Struct, kw_only=True):
    """Firmware that is preferred.

    preferred_use_bios: the classic firmware.
    preferred_use_bios_serial: whether its output goes to the serial console.
    preferred_efi: UEFI firmware.
    preferred_use_efi: UEFI firmware (old spelling).
    preferred_use_secure_boot: whether UEFI starts signed code only (old spelling).
    """

    preferred_use_bios: bool | None = None
    preferred_use_bios_serial: bool | None = None
    preferred_efi: Efi | None = None
    preferred_use_efi: bool | None = None
    preferred_use_secure_boot: bool | None = None


class PreferredMachine(Struct, kw_only=True):
    """The board that is preferred.

    preferred_machine_type: its type.
    """

    preferred_machine_type: str = ""


class PreferredVolumes(Struct, kw_only=True):
    """Storage that is preferred.

    preferred_storage_class_name: the storage class of DataVolumes that name none.
    """

    preferred_storage_class_name: str = ""


class PreferredClock(Struct, kw_only=True):
    """The clock that is preferred.

    preferred_clock_offset: utc or a timezone.
    preferred_timer: timers.
    """

    preferred_clock_offset: "ClockOffset | None" = None
    preferred_timer: Timer | None = None


class ClockOffset(Struct, kw_only=True):
    """What the clock starts at.

    utc: UTC.
    timezone: this zone's time.
    """

    utc: ClockUtc | None = None
    timezone: str | None = None


class CpuRequirement(Struct, kw_only=True):
    """Processors that are needed.

    guest: how many at least.
    """

    guest: Uint32


class MemoryRequirement(Struct, kw_only=True):
    """Memory that is needed.

    guest: how much at least.
    """

    guest: Quantity


class Requirements(Struct, kw_only=True):
    """What a machine must have for the preference to make sense.

    cpu: processors.
    memory: memory.
    architecture: amd64 or arm64.
    """

    cpu: CpuRequirement | None = None
    memory: MemoryRequirement | None = None
    architecture: str | None = None


class PreferenceSpec(Struct, kw_only=True):
    """What machines get where they do not say.

    clock: the clock.
    cpu: how processors are laid out.
    devices: devices.
    features: features.
    firmware: firmware.
    machine: the board.
    volumes: storage.
    preferred_subdomain: the subdomain.
    preferred_termination_grace_period_seconds: seconds that the guest has to shut down.
    preferred_architecture: amd64 or arm64.
    prefer_spread_socket_to_core_ratio: ratio of cores to sockets (old spelling).
    requirements: what a machine must have.
    annotations: annotations of the machine.
    """

    clock: PreferredClock | None = None
    cpu: PreferredCpu | None = None
    devices: PreferredDevices | None = None
    features: PreferredFeatures | None = None
    firmware: PreferredFirmware | None = None
    machine: PreferredMachine | None = None
    volumes: PreferredVolumes | None = None
    preferred_subdomain: str | None = None
    preferred_termination_grace_period_seconds: int | None = None
    preferred_architecture: str | None = None
    prefer_spread_socket_to_core_ratio: Uint32 = 0
    requirements: Requirements | None = None
    annotations: dict[str, str] = {}


class Instancetype(Object, kw_only=True):
    """What both kinds of instance types are like.

    spec: what machines of the type get.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"

    spec: InstancetypeSpec


class VirtualMachineInstancetype(Instancetype, kw_only=True):
    """Processors and memory by name, for the VirtualMachines of its namespace.

    spec: what machines of the type get.
    """

    kind: ClassVar[str] = "VirtualMachineInstancetype"


class VirtualMachineClusterInstancetype(Instancetype, kw_only=True):
    """Processors and memory by name, for every VirtualMachine.

    spec: what machines of the type get.
    """

    kind: ClassVar[str] = "VirtualMachineClusterInstancetype"


class Preference(Object, kw_only=True):
    """What both kinds of preferences are like.

    spec: what machines get where they do not say.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"

    spec: PreferenceSpec = msgspec.field(default_factory=PreferenceSpec)


class VirtualMachinePreference(Preference, kw_only=True):
    """Devices by name, for the VirtualMachines of its namespace.

    spec: what machines get where they do not say.
    """

    kind: ClassVar[str] = "VirtualMachinePreference"


class VirtualMachineClusterPreference(Preference, kw_only=True):
    """Devices by name, for every VirtualMachine.

    spec: what machines get where they do not say.
    """

    kind: ClassVar[str] = "VirtualMachineClusterPreference"
