"""Metrics of a node's machines, with KubeVirt's names and labels (virt-handler's domainstats).

A scrape reads the counters of QEMU and the kernel; it does not wake guests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.metrics import START_BOUNDS, START_STAGES, Family, Registry, Stages, process
from corral.node.counters import Card, Flow
from corral.node.hypervisor import GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.machine.migration.departure import HANDED_OVER
from corral.node.metrics.downtimes import Downtimes
from corral.node.metrics.families import MachineFamilies
from corral.node.network.pod_layout import BRIDGE, TAP, interface_of
from corral.node.state.machine_state import IDENTITY_RENEWED

ListMachines = Callable[[], Iterable[Machine]]
FindVMI = Callable[[str], VirtualMachineInstance | None]
"""Returns the cached VMI of a uid."""
Step = Callable[[str, str], None]
"""Called for each step of each machine: the VMI's uid, and the step."""

QUERY_SECONDS: Final = 2.0
"""Timeout of QEMU's counters: a machine that hangs is left out and does not delay the others."""
_LABEL_LETTERS = str.maketrans("./-", "___")
_STAGES = {"prepared": "prepared", "spawned": "spawned", "resumed": "started", "booted": "booted"}
"""The stage of a machine's start that ends with a step."""
_LAST = frozenset({"booted", "ended", "erased"})
_FORK_STAGES = {"loaded": "loaded", IDENTITY_RENEWED: "renewed"}
_FORK_LAST = frozenset({IDENTITY_RENEWED, "ended", "erased"})
_FORK_HELP = (
    "Time from the disks of a fork until its guest goes on (loaded), and from then until it has an"
    " identity of its own (renewed)."
)

T = TypeVar("T")

log = structlog.get_logger()


def log_step(uid: str, step: str) -> None:
    log.debug("machine", uid=uid, step=step)


class VmiMetrics:
    """Collects the metrics of one node's machines, of the stages of their starts, and others."""

    def __init__(
        self,
        node: str,
        machines: ListMachines,
        find_vmi: FindVMI,
        others: Callable[[], Iterable[Family]] = tuple,
    ) -> None:
        self._node = node
        self._others = others
        self._machines = machines
        self._find_vmi = find_vmi
        self._stages = Stages(*START_STAGES, START_BOUNDS)
        self._downtimes = Downtimes(node, machines)
        self._forks = Stages("corral_fork_seconds", _FORK_HELP, START_BOUNDS)
        self._registry = Registry(node=self.collect, process=process)

    def routes(self) -> list[Route]:
        """Return the route of the kubelet's ``/metrics``, with this node only."""
        return [Route("/metrics", self._scraped)]

    async def _scraped(self, request: Request) -> Response:
        body, media_type = await self._registry.text(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    def step(self, uid: str, step: str) -> None:
        """Record a step of a machine; ``defined`` is the first one of a start."""
        if step == "defined":
            self._stages.begin(uid)
        if step == "forked disks":
            self._forks.begin(uid)
        if step in _FORK_STAGES:
            self._forks.end(_FORK_STAGES[step], uid)
        if step in _FORK_LAST:
            self._forks.forget(uid)
        if (stage := _STAGES.get(step)) is not None:
            self._stages.end(stage, uid)
        if step in _LAST:
            self._stages.forget(uid)
        if step == HANDED_OVER:
            self._downtimes.observe(uid)

    async def collect(self) -> Iterable[Family]:
        families = MachineFamilies()
        await asyncio.gather(*(self._add(each, families) for each in self._machines()))
        for vmi, downtime in self._downtimes.latest(self._find_vmi):
            labels = self._labels(vmi) if vmi is not None else self._named(downtime.vmi)
            families.add_downtime(labels, downtime.seconds)
        own = (self._stages, self._forks, self._downtimes)
        return [*families, *(each.family() for each in own), *self._others()]

    async def _add(self, machine: Machine, families: MachineFamilies) -> None:
        vmi = self._find_vmi(machine.record.uid)
        try:
            guest = machine.guest
        except GuestError:
            return
        if vmi is None or (usage := guest.usage()) is None:
            return
        labels = self._labels(vmi)
        families.add_usage(labels, vmi, usage)
        if (counters := await _queried(vmi, guest.counters(vmi))) is not None:
            families.add_counters(labels, counters)
            if (migration := await _queried(vmi, guest.migration_counters())) is not None:
                families.add_migration(labels, migration)
        families.add_cards(labels, cards(vmi, guest.pid))

    def _labels(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        """Return namespace, name and node of a VMI, and its own labels with KubeVirt's prefix."""
        own = {
            f"kubernetes_vmi_label_{name.translate(_LABEL_LETTERS)}": value
            for name, value in vmi.metadata.labels.items()
        }
        return own | self._named(vmi.key)

    def _named(self, vmi: Key) -> dict[str, str]:
        return {"node": self._node, "namespace": vmi.namespace, "name": vmi.name}


async def _queried(vmi: VirtualMachineInstance, query: Awaitable[T]) -> T | None:
    """Return the result of a query of QEMU; None if it fails, or takes too long."""
    try:
        async with asyncio.timeout(QUERY_SECONDS):
            return await query
    except (GuestError, TimeoutError) as error:
        log.debug("cannot query counters", instance=str(vmi.key), error=describe(error))
        return None


def cards(vmi: VirtualMachineInstance, pid: int | None) -> Mapping[str, Card]:
    """Return the network cards of a guest by interface; none for a user-mode network.

    Their counters are those of the devices in the network namespace of QEMU's process.
    """
    interface = interface_of(vmi)
    if pid is None or interface is None:
        return {}
    with suppress(OSError):
        devices = _devices(Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii"))
        if BRIDGE in devices and TAP in devices:  # else it is not a pod's network namespace
            sent, received = devices[TAP]  # the tap receives what the guest sends
            return {interface.name: Card(received, sent)}
    return {}


def _devices(text: str) -> dict[str, tuple[Flow, Flow]]:
    """Return the received and sent counters of each device (proc_pid_net(5))."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        numbers = [int(value) for value in values.split()]
        received, sent = (
            Flow(numbers[at + 1], numbers[at], 0, numbers[at + 2], numbers[at + 3]) for at in (0, 8)
        )
        found[name.strip()] = received, sent
    return found
