"""The traffic of a guest's cards, as the devices in the network of its process tell it."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import Card, Flow
from corral.node.network.pod_layout import BRIDGE, TAP, interface_of


def cards(vmi: VirtualMachineInstance, pid: int | None) -> Mapping[str, Card]:
    """The cards of a guest by interface; none where it is behind a user network."""
    interface = interface_of(vmi)
    if pid is None or interface is None:
        return {}
    with suppress(OSError):
        devices = _devices(Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii"))
        if BRIDGE in devices and TAP in devices:  # a pod's own network
            sent, received = devices[TAP]  # what the host receives of the tap the guest has sent
            return {interface.name: Card(received, sent)}
    return {}


def _devices(text: str) -> dict[str, tuple[Flow, Flow]]:
    """What each device has received and sent (proc_pid_net(5))."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        numbers = [int(value) for value in values.split()]
        received, sent = (
            Flow(numbers[at + 1], numbers[at], 0, numbers[at + 2], numbers[at + 3]) for at in (0, 8)
        )
        found[name.strip()] = received, sent
    return found
