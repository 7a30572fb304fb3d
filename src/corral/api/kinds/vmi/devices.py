"""Devices of a VMI other than disks (``disks``) and network interfaces (``networks``)."""

from typing import Annotated

import msgspec

from corral.api.kinds.vmi.disks import Disk, Filesystem
from corral.api.kinds.vmi.features import FeatureState
from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.schema_bounds import MOST
from corral.api.object import Struct


class WatchdogAction(Struct, kw_only=True):
    """A watchdog of one model.

    action: what it does when the guest hangs: poweroff, reset (the default) or shutdown.
    """

    action: str = ""


class Watchdog(Struct, kw_only=True):
    """A device that acts when the guest stops feeding it.

    name: name of the device.
    i6300esb: Intel's watchdog, for x86.
    diag288: the watchdog of s390x.
    """

    name: str
    i6300esb: WatchdogAction | None = None
    diag288: WatchdogAction | None = None


class Input(Struct, kw_only=True):
    """An input device.

    name: name of the device.
    type: tablet.
    bus: virtio or usb.
    """

    name: str
    type: str
    bus: str = ""


class Rng(Struct, kw_only=True):
    """Random numbers of the host."""


class VgpuDisplay(Struct, kw_only=True):
    """The display of a virtual GPU.

    enabled: true by default.
    ram_fb: a framebuffer until the guest loads its driver.
    """

    enabled: bool | None = None
    ram_fb: FeatureState | None = msgspec.field(default=None, name="ramFB")


class VgpuOptions(Struct, kw_only=True):
    """Settings of a virtual GPU.

    display: its display.
    """

    display: VgpuDisplay | None = None


class HostDevice(Struct, kw_only=True):
    """A device of the node that is passed through.

    name: name of the device in the machine.
    device_name: the resource that the node's device plugin offers.
    claim_name: the claim among spec.resourceClaims that brings it.
    request_name: the request in that claim.
    tag: shown to the guest through the config drive.
    """

    name: str
    device_name: str = ""
    claim_name: str | None = None
    request_name: str | None = None
    tag: str = ""


class Gpu(HostDevice, kw_only=True):
    """A GPU of the node that is passed through.

    virtual_gpu_options: settings of a virtual GPU.
    """

    virtual_gpu_options: VgpuOptions | None = msgspec.field(default=None, name="virtualGPUOptions")


class DownwardMetrics(Struct, kw_only=True):
    """A serial port that serves metrics of the host."""


class PanicDevice(Struct, kw_only=True):
    """A device by which a guest reports a kernel panic.

    model: isa, hyperv or pvpanic.
    """

    model: str | None = None


class ClientPassthrough(Struct, kw_only=True):
    """USB redirection: the guest can use USB devices of the client at its console."""


class Sound(Struct, kw_only=True):
    """A sound card.

    name: name of the device.
    model: ich9 (the default) or ac97.
    """

    name: str
    model: str = ""


class Tpm(Struct, kw_only=True):
    """A trusted platform module.

    enabled: true by default.
    persistent: whether its state outlives the machine.
    """

    enabled: bool | None = None
    persistent: bool | None = None


class Video(Struct, kw_only=True):
    """The graphics card.

    type: virtio, vga, bochs or ramfb.
    """

    type: str = ""


class Devices(Struct, kw_only=True):
    """The devices of the machine.

    disks: disks, CD-ROMs and LUNs: exactly one of the three; each shows the volume of its name.
    interfaces: network cards, each with one binding; each joins the network of its name.
    filesystems: volumes that the guest mounts as file systems.
    inputs: input devices.
    rng: random numbers of the host.
    watchdog: a device that acts when the guest hangs.
    gpus: GPUs that are passed through.
    host_devices: devices of the node that are passed through.
    tpm: a trusted platform module.
    video: the graphics card.
    sound: a sound card.
    panic_devices: devices by which a guest reports a kernel panic.
    downward_metrics: a serial port that serves metrics of the host.
    client_passthrough: USB redirection from the client at the console.
    autoattach_pod_interface: whether a machine without interfaces gets one; true by default.
    autoattach_graphics_device: whether there is a screen, hence VNC; true by default.
    autoattach_serial_console: whether there is a serial console; true by default.
    autoattach_mem_balloon: whether there is a memory balloon; true by default.
    autoattach_input_device: whether there is an input device; false by default.
    autoattach_vsock: whether there is a vsock device; false by default.
    log_serial_console: whether the serial console is written to a log.
    block_multi_queue: whether disks have a queue for each CPU.
    network_interface_multiqueue: whether network cards have a queue for each CPU.
    use_virtio_transitional: whether virtio devices speak the old protocol also.
    disable_hotplug: whether no disk may be added at run time.
    """

    disks: Annotated[list[Disk], MOST] = []
    interfaces: Annotated[list[Interface], MOST] = []
    filesystems: list[Filesystem] = []
    inputs: list[Input] = []
    rng: Rng | None = None
    watchdog: Watchdog | None = None
    gpus: list[Gpu] = []
    host_devices: list[HostDevice] = []
    tpm: Tpm | None = None
    video: Video | None = None
    sound: Sound | None = None
    panic_devices: list[PanicDevice] = []
    downward_metrics: DownwardMetrics | None = None
    client_passthrough: ClientPassthrough | None = None
    autoattach_pod_interface: bool | None = None
    autoattach_graphics_device: bool | None = None
    autoattach_serial_console: bool | None = None
    autoattach_mem_balloon: bool | None = None
    autoattach_input_device: bool | None = None
    autoattach_vsock: bool | None = msgspec.field(default=None, name="autoattachVSOCK")
    log_serial_console: bool | None = None
    block_multi_queue: bool | None = None
    network_interface_multiqueue: bool | None = None
    use_virtio_transitional: bool | None = None
    disable_hotplug: bool = False
