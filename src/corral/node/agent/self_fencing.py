"""Self-fencing: the agent ends exclusive machines when its node's Lease expires.

A node that cannot renew its Lease for 40 s may have been replaced: it ends the machines of which
two must never run (``is_exclusive``), and lets all others run on.  The watchdog does the same a
second later, should this process be dead or hang.  Once the API server is reached again, machines
that were replaced end before the node reports that it is ready.

An agent that is stopped in order lets them run on: the Node says that it does not fence itself, so
nobody replaces them, and a file says so to the next agent.  At each moment the file lies there only
while the Node says it, as any step may be the last one of a process:

- ``end`` writes the Node, then the file, then ends the watchdog;
- ``resume`` starts the watchdog, then removes the file, and then the Node is written.

A process that dies in between costs machines that the watchdog ends, though nobody replaces them.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
from lightkube.models.core_v1 import Pod

import corral
from corral.aio import Background
from corral.api.kinds import kind_of
from corral.api.kinds.core import node_lease
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.client.client import Client
from corral.node.agent.machines import Machines
from corral.node.fencing.lease import NodeLease
from corral.node.health import NodeCondition
from corral.node.host.process import launch
from corral.node.machine.lifecycle import Machine
from corral.node.network.helper_processes import Helper
from corral.node.network.netlink import NetworkError
from corral.reconcile.deletion import exists
from corral.reconcile.objects import uid_of

WATCHDOG: Final = "watchdog"
"""The directory of the watchdog's process, in that of its node."""
END_SECONDS: Final = 20.0
"""Longest end of replaced machines.  A killed QEMU that the kernel keeps for longer, for
instance as its disk does not answer, executes no guest any more."""
_RUN: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from corral.node.fencing.watchdog import main; main()"
)

log = structlog.get_logger()


def watchdog(node_directory: Path, on_change: Callable[[], None] = lambda: None) -> Helper:
    """Return the watchdog of a node, which may run already."""
    packages = str(Path(corral.__file__).parent.parent)
    command = [sys.executable, "-I", "-S", "-c", _RUN, packages, str(node_directory)]

    async def start(descriptors: Sequence[int], output: int) -> int:
        seconds = str(node_lease.WATCHDOG_SECONDS)
        return launch([*command, seconds], descriptors=descriptors, output=output)

    return Helper("the watchdog", node_directory / WATCHDOG, start, on_change=on_change)


class SelfFencing:
    """Ends exclusive machines of a node in time; ``helper`` is its watchdog, if it has one."""

    def __init__(
        self,
        client: Client,
        node: str,
        lease: NodeLease,
        machines: Machines,
        helper: Helper | None,
    ) -> None:
        self._client = client
        self._node = node
        self._lease = lease
        self._machines = machines
        self._helper = helper
        self._tasks: Background | None = None
        self._restarts: asyncio.Task[None] | None = None
        self._ends = False
        self._lapses = lease.lapses
        """The lapses of the Lease after which exclusive machines were ended, or ran on."""

    def condition(self) -> NodeCondition:
        """Return whether exclusive machines may be replaced when the node is silent, and why."""
        if self._ends or self._lease.stopped:
            words = "was stopped: machines run on, and those with an identity are not replaced"
            return NodeCondition(active=False, reason="AgentStopped", message=words)
        if self._helper is not None and not self._helper.is_running:
            words = f"has no watchdog: {self._helper.problem or 'it has ended'}"
            return NodeCondition(active=False, reason="NoWatchdog", message=words)
        words = f"ends machines of which two must never run {node_lease.SECONDS:.0f} s after the"
        words += " last renewal of the Lease"
        return NodeCondition(active=True, reason="WatchdogRuns", message=words)

    async def start(self, tasks: Background) -> None:
        """Adopt or start the watchdog, before anything is adopted, and keep it running.

        After a stop it is started by ``resume``: it would see an old renewal, and act at once.
        """
        self._tasks = tasks
        if self._helper is not None and self._lease.stopped:
            with suppress(NetworkError):
                await self._helper.end()  # of an agent that was killed in ``end`` or ``resume``
        elif self._helper is not None:
            with suppress(NetworkError):  # reported, and tried again, by what follows
                await self._helper.ensure()
            self._keep_running(self._helper)
        tasks.start(self.run(), name="self-fencing")

    def _keep_running(self, helper: Helper) -> None:
        assert self._tasks is not None
        if self._restarts is None:
            self._restarts = self._tasks.start(helper.run(), name="watchdog")

    async def resume(self) -> bool:
        """Fence again after a stop, once the Lease was renewed; return whether that begins now.

        The watchdog first: a file removed without it leaves machines to nobody if this process dies
        then.  The Node last: were it written while the file is there, the next agent would let
        machines run on that have been replaced.
        """
        if not self._lease.stopped or self._ends or not self._lease.is_valid:
            return False
        try:
            if self._helper is not None:
                await self._helper.ensure()
                self._keep_running(self._helper)
            self._lease.resume()
        except (NetworkError, OSError) as error:
            log.warning("the node does not fence itself yet", error=str(error))
            return False
        self._lapses = self._lease.lapses  # while it was stopped they ended nothing
        return True

    async def end(self, write_last: Callable[[], Awaitable[bool]]) -> None:
        """End the watchdog once the Node says that exclusive machines are not to be replaced.

        Otherwise it stays, and ends these machines when the Lease expires.  The file lies there
        before the watchdog ends, so that a start after any time leaves the machines alone.
        """
        self._ends = True
        if not await write_last():
            return
        try:
            self._lease.stop()
        except OSError as error:  # they run on, but not beyond a late start
            log.error("the stop of the agent is not recorded", error=str(error))  # noqa: TRY400
        if self._helper is not None:
            if self._restarts is not None:
                self._restarts.cancel()
            with suppress(NetworkError):
                await self._helper.end()

    async def run(self) -> None:
        """End exclusive machines whenever the Lease expires, until cancelled."""
        while True:
            left = self._lease.seconds_left
            if left > 0 and self._lapses == self._lease.lapses:
                await asyncio.sleep(left)
                continue
            if not self._lease.stopped:
                self._end_exclusive()
            self._lease.renewal.clear()
            if not self._lease.is_valid:
                await self._lease.renewal.wait()
            self._lapses = self._lease.lapses
            self._retry()

    def _end_exclusive(self) -> None:
        for machine in self._machines.values():
            if machine.record.exclusive and not machine.facts.ended:
                log.warning("lease expired, machine ended", instance=machine.record.instance)
                machine.fence()

    def _retry(self) -> None:
        """Start the machines that have waited for a valid Lease."""
        for machine in self._machines.values():
            if machine.record.exclusive:
                machine.retry()

    async def end_replaced(self) -> None:
        """End machines that were replaced while the node was silent.  Raises ApiError."""
        pods = await self._client.list(Pod, fields=f"spec.nodeName={self._node}")
        vmis = await self._client.list(VirtualMachineInstance, labels=f"{NODE_LABEL}={self._node}")
        present = {uid_of(pod) for pod in pods.items}
        final = {vmi.metadata.uid: vmi.is_final for vmi in vmis.items}
        replaced = []
        for machine in list(self._machines.values()):
            record = machine.record
            if machine.facts.ended:
                continue
            if record.pod_uid in present and final.get(record.uid) is False:
                continue
            if final.get(record.uid) or not await self._exists(machine):
                machine.stop(0)
                replaced.append(Key(record.namespace, record.pod))
        if not await self._machines.ended(replaced, END_SECONDS):
            log.warning("killed machines have not ended yet", seconds=END_SECONDS)

    async def _exists(self, machine: Machine) -> bool:
        """Report whether a machine's pod and VMI exist: those damaged on the server are in no list.

        The pod first: without it, the node may not read a VMI of that name on another node.
        """
        of = machine.record
        pod, vmi = Key(of.namespace, of.pod), Key(of.namespace, of.instance)
        return await exists(self._client, pod, of.pod_uid, kind_of(Pod)) and await exists(
            self._client, vmi, of.uid, kind_of(VirtualMachineInstance)
        )
