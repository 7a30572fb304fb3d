"""Asks machines whether they are ready and alive, as a kubelet asks containers (core/v1 Probe).

Readiness decides whether a machine's pod is Ready, hence what Services lead to; a machine that is
no longer alive is told to shut down, and ended when its grace is over.  A machine without probes
has no task here.
"""

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass, replace

from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.machine.lifecycle import Machine
from corral.node.network.guest_ports import Ports
from corral.node.probes.handlers import Answer, Question
from corral.node.state.events import MachineEvents
from corral.node.state.grace_period import guest_seconds

PERIOD_SECONDS = 10
SUCCESSES = 1
FAILURES = 3
"""What a probe has that does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often in a row a probe has said the same, and what that has come to."""

    probe: Probe
    verdict: bool | None = None
    last: bool | None = None
    times: int = 0

    def after(self, answer: bool) -> "Tally":  # noqa: FBT001 - what a probe says
        """The tally with one more answer."""
        times = self.times + 1 if answer is self.last else 1
        enough = self.probe.success_threshold or SUCCESSES
        if not answer:
            enough = self.probe.failure_threshold or FAILURES
        verdict = answer if times >= enough else self.verdict
        return replace(self, verdict=verdict, last=answer, times=times)


def is_probed(vmi: VirtualMachineInstance) -> bool:
    return vmi.spec.readiness_probe is not None or vmi.spec.liveness_probe is not None


class Prober:
    """The probes of one machine."""

    def __init__(
        self, vmi: VirtualMachineInstance | None, ports: Ports, recorder: MachineEvents
    ) -> None:
        self._vmi = vmi
        self._ports = ports
        self._recorder = recorder

    async def run(self, machine: Machine) -> None:
        """Ask for as long as its guest runs, until cancelled."""
        vmi = self._vmi
        if vmi is None:
            return
        if machine.facts.unhealthy:  # as an earlier manager has found
            machine.stop_unhealthy(machine.facts.unhealthy, guest_seconds(vmi))
        ready, alive = vmi.spec.readiness_probe, vmi.spec.liveness_probe
        async with asyncio.TaskGroup() as group:
            if ready is not None:
                group.create_task(self._watch(machine, vmi, ready, "Readiness"))
            if alive is not None:
                group.create_task(self._watch(machine, vmi, alive, "Liveness"))

    async def _watch(
        self, machine: Machine, vmi: VirtualMachineInstance, probe: Probe, name: str
    ) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_delay_left(probe, machine.record.started_at))
        tally = Tally(probe)
        with closing(Question(vmi, probe, self._ports)) as question:
            while name == "Readiness" or not machine.stopping:  # who shuts down need not live
                begun = loop.time()
                answer = await self._answer(machine, question)
                if answer is not None:
                    self._tell(name, answer)
                    tally = tally.after(not answer.why)
                    if name == "Readiness":
                        self._judge(machine, tally.verdict)
                    elif tally.verdict is False and not machine.stopping:
                        self._recorder.pod_event(
                            "Normal", "Killing", "Container compute failed liveness probe"
                        )
                        machine.stop_unhealthy(answer.why, guest_seconds(vmi))
                period = probe.period_seconds or PERIOD_SECONDS
                await asyncio.sleep(max(0.0, begun + period - loop.time()))

    def _tell(self, name: str, answer: Answer) -> None:
        if answer.why:
            self._recorder.pod_event("Warning", "Unhealthy", f"{name} probe failed: {answer.why}")
        elif answer.warning:
            self._recorder.pod_event(
                "Warning", "ProbeWarning", f"{name} probe warning: {answer.warning}"
            )

    def _judge(self, machine: Machine, verdict: bool | None) -> None:  # noqa: FBT001
        if verdict is not None and machine.facts.ready is not verdict:
            machine.set_facts(replace(machine.facts, ready=verdict))

    async def _answer(self, machine: Machine, question: Question) -> Answer | None:
        """The answer, or None where the guest cannot be blamed for it."""
        if self._rests(machine):
            return None
        answer = await question.ask(machine)
        return None if answer.why and self._rests(machine) else answer

    def _rests(self, machine: Machine) -> bool:
        """Who stands still cannot answer, who is frozen runs no commands; neither is unhealthy."""
        frozen = machine.facts.frozen
        if frozen is None and self._vmi is not None:
            frozen = self._vmi.status.fs_freeze_status == "frozen"  # by an earlier manager
        return bool(frozen or machine.facts.paused or machine.facts.saving)


def _delay_left(probe: Probe, started_at: float) -> float:
    """Seconds until the first question, of which an earlier manager may have waited some.

    Nothing is added, as KubeVirt does for the start of its libvirt: the guest runs already.
    """
    delay = float(probe.initial_delay_seconds)
    return max(0.0, min(delay, started_at + delay - time.time()))
