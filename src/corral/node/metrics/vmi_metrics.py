"""What a node tells of its machines: KubeVirt's names and labels (virt-handler's domainstats).

Guests are not woken for it: what QEMU and the kernel know of them is read when somebody asks.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.metrics import START_BOUNDS, START_STAGES, Family, Registry, Stages, process
from corral.node.counters import Card, Counters, Flow
from corral.node.hypervisor import Guest, GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.families import MachineFamilies
from corral.node.network.pod_layout import BRIDGE, TAP, interface_of

Present = Callable[[], Iterable[Machine]]
Find = Callable[[str], VirtualMachineInstance | None]
"""The instance with a uid."""
Step = Callable[[str, str], None]
"""Is told each step of each machine: the instance's uid, and the step."""

ANSWER_SECONDS: Final = 2.0
"""So long a machine may take to tell: one that hangs is left out, and holds up no other."""
_LABEL_LETTERS = str.maketrans("./-", "___")
_STAGES = {"prepared": "prepared", "spawned": "spawned", "resumed": "started", "booted": "booted"}
"""Steps of a machine at which a stage of its start ends."""
_LAST = frozenset({"booted", "ended", "erased"})

log = structlog.get_logger()


def log_step(uid: str, step: str) -> None:
    log.debug("machine", uid=uid, step=step)


class Measures:
    """The figures of one node's machines, and of how they came up."""

    def __init__(self, node: str, machines: Present, instance: Find) -> None:
        self._node = node
        self._machines = machines
        self._instance = instance
        self._stages = Stages(*START_STAGES, START_BOUNDS)
        self._registry = Registry(node=self.tell, process=process)

    def routes(self) -> list[Route]:
        """The kubelet's door for who scrapes this node alone."""
        return [Route("/metrics", self._scraped)]

    async def _scraped(self, request: Request) -> Response:
        body, media_type = await self._registry.text(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    def step(self, uid: str, step: str) -> None:
        """A machine has taken a step: it is on record as soon as it is to be brought up."""
        if step == "defined":
            self._stages.begin(uid)
        if (stage := _STAGES.get(step)) is not None:
            self._stages.end(stage, uid)
        if step in _LAST:
            self._stages.forget(uid)

    async def tell(self) -> Iterable[Family]:
        families = MachineFamilies()
        await asyncio.gather(*(self._ask(each, families) for each in self._machines()))
        return [*families, self._stages.family()]

    async def _ask(self, machine: Machine, families: MachineFamilies) -> None:
        vmi = self._instance(machine.record.uid)
        try:
            guest = machine.guest
        except GuestError:
            return
        if vmi is None or (usage := guest.usage()) is None:
            return
        labels = self._labels(vmi)
        families.tell_usage(labels, vmi, usage)
        if (counters := await _counters(guest, vmi)) is not None:
            families.tell_counters(labels, counters)
        families.tell_cards(labels, cards(vmi, guest.pid))

    def _labels(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        """What names an instance; its own labels are told, too."""
        own = {
            f"kubernetes_vmi_label_{name.translate(_LABEL_LETTERS)}": value
            for name, value in vmi.metadata.labels.items()
        }
        name = {"namespace": vmi.metadata.namespace, "name": vmi.metadata.name}
        return own | {"node": self._node} | name


async def _counters(guest: Guest, vmi: VirtualMachineInstance) -> Counters | None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await guest.counters(vmi)
    except (GuestError, TimeoutError) as error:
        log.debug("counters unknown", instance=str(vmi.key), error=describe(error))
        return None


def cards(vmi: VirtualMachineInstance, pid: int | None) -> Mapping[str, Card]:
    """The cards of a guest by interface; none where it is behind a user network.

    Their traffic is what the devices in the network namespace of its process count.
    """
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
