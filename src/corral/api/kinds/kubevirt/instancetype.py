"""Instance types and preferences: processors, memory and devices by name.

KubeVirt's instancetype.kubevirt.io: an instance type fixes resources of a VirtualMachine, a
preference defaults what it leaves open; each is namespaced or cluster-wide.
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

    guest: number of processors of the guest.
    model: as in a machine's spec.
    dedicated_cpu_placement: whether each is pinned to one of the host.
    numa: the guest's NUMA nodes.
    isolate_emulator_thread: whether QEMU's emulator threads have a processor of their own.
    realtime: settings for low latency.
    max_sockets: sockets that can be reached by hotplug.
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

    guest: memory that the guest sees.
    hugepages: memory in large pages.
    overcommit_percent: by how much less than the guest's memory is requested of the node.
    max_guest: memory that can be reached by hotplug.
    """

    guest: Quantity
    hugepages: Hugepages | None = None
    overcommit_percent: Percentage = 0
    max_guest: Quantity | None = None


class InstancetypeSpec(Struct, kw_only=True):
    """Fields of the machines of this type; a VirtualMachine may not set them itself.

    cpu: processors.
    memory: memory.
    node_selector: labels that the node must have.
    scheduler_name: the scheduler of the pod.
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
    """The spread of processors across units.

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

    preferred_autoattach_graphics_device: whether a graphics device is added.
    preferred_autoattach_mem_balloon: whether a memory balloon is added.
    preferred_autoattach_pod_interface: whether an interface on the pod network is added.
    preferred_autoattach_serial_console: whether a serial console is added.
    preferred_autoattach_input_device: whether a tablet is added.
    preferred_disable_hotplug: whether hotplug is disabled.
    preferred_use_virtio_transitional: whether virtio devices are transitional, for old guests.
    preferred_block_multi_queue: whether disks have a queue for each processor.
    preferred_network_interface_multi_queue: whether network cards have a queue for each processor.
    preferred_sound_model: the model of the sound card.
    preferred_rng: the source of random numbers.
    preferred_tpm: the trusted platform module.
    preferred_virtual_gpu_options: settings of virtual GPUs.
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
    preferred_interface_masquerade: whether interfaces use the masquerade binding.
    preferred_panic_device_model: the model of panic devices.
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
    preferred_hyperv: Hyper-V enlightenments.
    preferred_kvm: visibility of KVM.
    preferred_pvspinlock: paravirtual spinlocks.
    preferred_smm: system management mode.
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
    """The offset of the clock.

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
    """Minimum resources of a machine that uses the preference.

    cpu: processors.
    memory: memory.
    architecture: amd64 or arm64.
    """

    cpu: CpuRequirement | None = None
    memory: MemoryRequirement | None = None
    architecture: str | None = None


class PreferenceSpec(Struct, kw_only=True):
    """Defaults of machines that use the preference.

    clock: the clock.
    cpu: the CPU topology.
    devices: devices.
    features: features.
    firmware: firmware.
    machine: the board.
    volumes: storage.
    preferred_subdomain: the subdomain.
    preferred_termination_grace_period_seconds: seconds that the guest has to shut down.
    preferred_architecture: amd64 or arm64.
    prefer_spread_socket_to_core_ratio: ratio of cores to sockets (old spelling).
    requirements: minimum resources of a machine.
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
    """The base of both kinds of instance types.

    spec: fields of the machines of this type.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"

    spec: InstancetypeSpec


class VirtualMachineInstancetype(Instancetype, kw_only=True):
    """Processors and memory by name, for the VirtualMachines of its namespace.

    spec: fields of the machines of this type.
    """

    kind: ClassVar[str] = "VirtualMachineInstancetype"


class VirtualMachineClusterInstancetype(Instancetype, kw_only=True):
    """Processors and memory by name, for every VirtualMachine.

    spec: fields of the machines of this type.
    """

    kind: ClassVar[str] = "VirtualMachineClusterInstancetype"


class Preference(Object, kw_only=True):
    """The base of both kinds of preferences.

    spec: defaults of machines that use it.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"

    spec: PreferenceSpec = msgspec.field(default_factory=PreferenceSpec)


class VirtualMachinePreference(Preference, kw_only=True):
    """Devices by name, for the VirtualMachines of its namespace.

    spec: defaults of machines that use it.
    """

    kind: ClassVar[str] = "VirtualMachinePreference"


class VirtualMachineClusterPreference(Preference, kw_only=True):
    """Devices by name, for every VirtualMachine.

    spec: defaults of machines that use it.
    """

    kind: ClassVar[str] = "VirtualMachineClusterPreference"
