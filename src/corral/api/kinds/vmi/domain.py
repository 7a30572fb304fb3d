"""The domain of a VMI: processors, memory, firmware and devices."""

from corral.api.kinds.vmi.devices import Devices
from corral.api.kinds.vmi.features import Clock, Features, LaunchSecurity
from corral.api.kinds.vmi.schema_bounds import Uint32
from corral.api.object import Quantity, Struct


class Resources(Struct, kw_only=True):
    """Resources that the machine requests of its node.

    requests: what the node must have free: cpu, memory.
    limits: what the machine may use at most: cpu, memory.
    overcommit_guest_overhead: whether QEMU's own memory is left out of the request.
    """

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    overcommit_guest_overhead: bool = False


class CpuFeature(Struct, kw_only=True):
    """A feature of the virtual processor.

    name: the feature, as QEMU names it.
    policy: force, require (the default), optional, disable or forbid.
    """

    name: str
    policy: str = ""


class NumaPassthrough(Struct, kw_only=True):
    """The guest's NUMA nodes are those of the host."""


class Numa(Struct, kw_only=True):
    """The guest's NUMA nodes.

    guest_mapping_passthrough: those of the host.
    """

    guest_mapping_passthrough: NumaPassthrough | None = None


class Realtime(Struct, kw_only=True):
    """Settings for low latency.

    mask: the virtual processors that run real-time, e.g. 0-3,^1.
    """

    mask: str = ""


class Cpu(Struct, kw_only=True):
    """The virtual processors: sockets x cores x threads.

    cores: cores of a socket.
    sockets: sockets.
    threads: threads of a core.
    max_sockets: sockets that can be reached by hotplug.
    model: host-model (the default), host-passthrough or a processor's name.
    features: features that are added or removed.
    dedicated_cpu_placement: whether each virtual processor is pinned to one of the host.
    numa: the guest's NUMA nodes.
    isolate_emulator_thread: whether QEMU's emulator threads have a processor of their own.
    realtime: settings for low latency.
    """

    cores: Uint32 = 0
    sockets: Uint32 = 0
    threads: Uint32 = 0
    max_sockets: Uint32 = 0
    model: str = ""
    features: list[CpuFeature] = []
    dedicated_cpu_placement: bool = False
    numa: Numa | None = None
    isolate_emulator_thread: bool = False
    realtime: Realtime | None = None


class Hugepages(Struct, kw_only=True):
    """Memory in large pages.

    page_size: 2Mi or 1Gi.
    """

    page_size: str = ""


class ReservedOverhead(Struct, kw_only=True):
    """Memory that is added to QEMU's own.

    added_overhead: the amount.
    mem_lock: whether memory is locked: Required or NotRequired.
    """

    added_overhead: Quantity | None = None
    mem_lock: str | None = None


class Memory(Struct, kw_only=True):
    """The guest's memory.

    guest: memory that the guest sees; the request of resources by default.
    max_guest: memory that can be reached by hotplug.
    hugepages: memory in large pages.
    reserved_overhead: memory that is added to QEMU's own.
    """

    guest: Quantity | None = None
    max_guest: Quantity | None = None
    hugepages: Hugepages | None = None
    reserved_overhead: ReservedOverhead | None = None


class Machine(Struct, kw_only=True):
    """The board.

    type: q35 (the default) or pc, or one of their versions.
    """

    type: str = ""


class Bios(Struct, kw_only=True):
    """The classic firmware.

    use_serial: whether its output goes to the serial console.
    """

    use_serial: bool | None = None


class Efi(Struct, kw_only=True):
    """UEFI firmware.

    secure_boot: whether only signed code is started; true by default.
    persistent: whether its variables outlive the machine.
    """

    secure_boot: bool | None = None
    persistent: bool | None = None


class Bootloader(Struct, kw_only=True):
    """The firmware that starts the guest: one of the two.

    bios: the classic firmware, the default.
    efi: UEFI firmware.
    """

    bios: Bios | None = None
    efi: Efi | None = None


class KernelBootContainer(Struct, kw_only=True):
    """A container image with a kernel.

    image: the container image.
    image_pull_secret: name of a Secret with the registry's credentials.
    image_pull_policy: Always, IfNotPresent or Never.
    kernel_path: the kernel's file inside the image.
    initrd_path: the initial RAM disk's file inside the image.
    """

    image: str
    image_pull_secret: str = ""
    image_pull_policy: str = ""
    kernel_path: str = ""
    initrd_path: str = ""


class KernelBoot(Struct, kw_only=True):
    """A kernel that is started without a boot loader.

    kernel_args: its command line.
    container: the image that holds it.
    """

    kernel_args: str = ""
    container: KernelBootContainer | None = None


class Acpi(Struct, kw_only=True):
    """ACPI tables with licences of Windows.

    slic_name_ref: the secret volume with the SLIC table.
    msdm_name_ref: the secret volume with the MSDM table.
    """

    slic_name_ref: str = ""
    msdm_name_ref: str = ""


class Firmware(Struct, kw_only=True):
    """Firmware, and the identity that it shows to the guest.

    uuid: the machine's identity; random by default.
    serial: the machine's serial number.
    bootloader: which firmware starts the guest: one of the two.
    kernel_boot: a kernel that is started without a boot loader.
    acpi: ACPI tables with licences of Windows.
    """

    uuid: str = ""
    serial: str = ""
    bootloader: Bootloader | None = None
    kernel_boot: KernelBoot | None = None
    acpi: Acpi | None = None


class Chassis(Struct, kw_only=True):
    """The case, as SMBIOS describes it.

    manufacturer: who made it.
    version: its version.
    serial: its serial number.
    asset: its inventory number.
    sku: its stock number.
    """

    manufacturer: str = ""
    version: str = ""
    serial: str = ""
    asset: str = ""
    sku: str = ""


class DiskIoThreads(Struct, kw_only=True):
    """Threads that serve the disks.

    supplemental_pool_thread_count: how many, with the policy supplementalPool.
    """

    supplemental_pool_thread_count: Uint32 | None = None


class Domain(Struct, kw_only=True):
    """The machine: processors, memory, firmware and devices.

    devices: disks, network cards and the rest.
    resources: resources that the machine requests of its node.
    cpu: the virtual processors: sockets x cores x threads.
    memory: the guest's memory.
    machine: the board.
    firmware: firmware, and the identity that it shows to the guest.
    clock: the guest's clock and timers.
    features: features of the machine.
    chassis: the case, as SMBIOS describes it.
    io_threads_policy: shared, auto or supplementalPool.
    io_threads: threads that serve the disks.
    launch_security: a guest whose memory its host cannot read.
    reboot_policy: Reboot (the default), or Terminate to end the machine when the guest reboots.
    """

    devices: Devices
    resources: Resources | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    machine: Machine | None = None
    firmware: Firmware | None = None
    clock: Clock | None = None
    features: Features | None = None
    chassis: Chassis | None = None
    io_threads_policy: str | None = None
    io_threads: DiskIoThreads | None = None
    launch_security: LaunchSecurity | None = None
    reboot_policy: str | None = None
