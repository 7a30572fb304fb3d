"""Readiness and liveness probes of machines, as a kubelet runs them (core/v1 Probe).

Readiness determines the condition Ready of the pod, hence the endpoints of Services; a machine that
fails its liveness probe is shut down, and killed after its grace period.  A machine without probes
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
from corral.node.probes.handlers import ProbeHandler, ProbeResult
from corral.node.state.events import MachineEvents
from corral.node.state.grace_period import guest_seconds

DEFAULT_PERIOD_SECONDS = 10
DEFAULT_SUCCESS_THRESHOLD = 1
DEFAULT_FAILURE_THRESHOLD = 3
"""Defaults of a probe."""


@dataclass(frozen=True, slots=True)
class ProbeHistory:
    """The last results of a probe, and the verdict by its thresholds."""

    probe: Probe
    verdict: bool | None = None
    last_success: bool | None = None
    consecutive: int = 0

    def with_result(self, result: bool) -> "ProbeHistory":  # noqa: FBT001 - what a probe says
        """Return the history with one more result."""
        consecutive = self.consecutive + 1 if result is self.last_success else 1
        threshold = self.probe.success_threshold or DEFAULT_SUCCESS_THRESHOLD
        if not result:
            threshold = self.probe.failure_threshold or DEFAULT_FAILURE_THRESHOLD
        verdict = result if consecutive >= threshold else self.verdict
        return replace(self, verdict=verdict, last_success=result, consecutive=consecutive)


def is_probed(vmi: VirtualMachineInstance) -> bool:
    return vmi.spec.readiness_probe is not None or vmi.spec.liveness_probe is not None


class Prober:
    """Runs the probes of one machine."""

    def __init__(
        self, vmi: VirtualMachineInstance | None, ports: Ports, recorder: MachineEvents
    ) -> None:
        self._vmi = vmi
        self._ports = ports
        self._recorder = recorder

    async def run(self, machine: Machine) -> None:
        """Run the probes while the guest runs, until cancelled."""
        vmi = self._vmi
        if vmi is None:
            return
        if machine.facts.unhealthy:  # recorded by an earlier manager
            machine.stop_unhealthy(machine.facts.unhealthy, guest_seconds(vmi))
        await machine.until_identified()
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
        history = ProbeHistory(probe)
        with closing(ProbeHandler(vmi, probe, self._ports)) as handler:
            while (
                name == "Readiness" or not machine.stopping
            ):  # a machine that shuts down needs no liveness probe
                started = loop.time()
                result = await self._run_probe(machine, handler)
                if result is not None:
                    self._record_event(name, result)
                    history = history.with_result(not result.failure)
                    if name == "Readiness":
                        self._set_ready(machine, history.verdict)
                    elif history.verdict is False and not machine.stopping:
                        self._recorder.pod_event(
                            "Normal", "Killing", "Container compute failed liveness probe"
                        )
                        machine.stop_unhealthy(result.failure, guest_seconds(vmi))
                period = probe.period_seconds or DEFAULT_PERIOD_SECONDS
                await asyncio.sleep(max(0.0, started + period - loop.time()))

    def _record_event(self, name: str, result: ProbeResult) -> None:
        if result.failure:
            self._recorder.pod_event(
                "Warning", "Unhealthy", f"{name} probe failed: {result.failure}"
            )
        elif result.warning:
            self._recorder.pod_event(
                "Warning", "ProbeWarning", f"{name} probe warning: {result.warning}"
            )

    def _set_ready(self, machine: Machine, verdict: bool | None) -> None:  # noqa: FBT001
        if verdict is not None and machine.facts.ready is not verdict:
            machine.set_facts(replace(machine.facts, ready=verdict))

    async def _run_probe(self, machine: Machine, handler: ProbeHandler) -> ProbeResult | None:
        """Return the result, or None while the guest is suspended."""
        if self._is_suspended(machine):
            return None
        result = await handler.run(machine)
        return None if result.failure and self._is_suspended(machine) else result

    def _is_suspended(self, machine: Machine) -> bool:
        """Report whether a guest is paused, saved or frozen: no answer is then no failure."""
        frozen = machine.facts.frozen
        if frozen is None and self._vmi is not None:
            frozen = self._vmi.status.fs_freeze_status == "frozen"  # by an earlier manager
        return bool(frozen or machine.facts.paused or machine.facts.saving)


def _delay_left(probe: Probe, started_at: float) -> float:
    """Return the seconds until the first probe, of which an earlier manager may have waited some.

    No extra delay, such as KubeVirt's for the start of libvirt: the guest runs already.
    """
    delay = float(probe.initial_delay_seconds)
    return max(0.0, min(delay, started_at + delay - time.time()))
