"""Asks machines whether they are ready and alive, as a kubelet asks containers (core/v1 Probe).

Readiness decides whether a machine's pod is Ready, hence what Services lead to; a machine that is
no longer alive is ended.  A machine without probes has no task here.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass, replace

from lightkube.models.core_v1 import ExecAction, HTTPGetAction, TCPSocketAction

from corral.api.kinds.probes import Probe
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node.facts import unhealthy
from corral.node.hypervisor import GuestError
from corral.node.machine import Machine
from corral.node.ports import Ports
from corral.node.voice import Voice

PERIOD_SECONDS = 10
TIMEOUT_SECONDS = 1
SUCCESSES = 1
FAILURES = 3
"""What a probe has that does not say otherwise."""
LONGEST_STATUS_LINE = 1024
LONGEST_OUTPUT = 200
"""Characters of what a command printed that an event repeats."""

_ANY_CERTIFICATE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Probes trust whoever answers, as a kubelet's do."""
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


class ProbeError(Exception):
    """The answer to a probe is no; the message says why."""


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


class Prober:
    """The probes of one machine."""

    def __init__(self, vmi: VirtualMachineInstance | None, ports: Ports, voice: Voice) -> None:
        self._vmi = vmi
        self._ports = ports
        self._voice = voice

    async def run(self, machine: Machine) -> None:
        """Ask for as long as its guest runs, until cancelled."""
        if self._vmi is None:
            return
        ready, alive = self._vmi.spec.readiness_probe, self._vmi.spec.liveness_probe
        async with asyncio.TaskGroup() as group:
            if ready is not None:
                group.create_task(self._watch(machine, ready, "Readiness"))
            if alive is not None:
                group.create_task(self._watch(machine, alive, "Liveness"))

    async def _watch(self, machine: Machine, probe: Probe, name: str) -> None:
        await asyncio.sleep(_delay_left(probe, machine.record.started_at))
        tally = Tally(probe)
        while True:
            why = await self._verdict(machine, probe)
            if why is not None:
                if why:
                    self._voice.of_pod("Warning", "Unhealthy", f"{name} probe failed: {why}")
                tally = tally.after(not why)
                if name == "Readiness":
                    self._judge(machine, tally.verdict)
                elif tally.verdict is False:
                    await self._condemn(machine, why)
                    return
            await asyncio.sleep(probe.period_seconds or PERIOD_SECONDS)

    def _judge(self, machine: Machine, verdict: bool | None) -> None:  # noqa: FBT001
        if verdict is not None and machine.facts.ready is not verdict:
            machine.learn(replace(machine.facts, ready=verdict))

    async def _condemn(self, machine: Machine, why: str) -> None:
        """End a machine that is not alive, which is then replaced by whoever wants it."""
        self._voice.of_pod("Normal", "Killing", "Container compute failed liveness probe")
        machine.learn(unhealthy(machine.facts, why))
        await machine.guest.destroy()

    async def _verdict(self, machine: Machine, probe: Probe) -> str | None:
        """The answer, or None where the guest cannot be blamed for it."""
        if self._rests(machine):
            return None
        why = await self._answer(machine, probe)
        return None if why and self._rests(machine) else why

    def _rests(self, machine: Machine) -> bool:
        """Who stands still cannot answer, who is frozen runs no commands; neither is unhealthy."""
        frozen = machine.facts.frozen
        if frozen is None and self._vmi is not None:
            frozen = self._vmi.status.fs_freeze_status == "frozen"  # by an earlier manager
        return bool(frozen or machine.facts.paused or machine.facts.saving)

    async def _answer(self, machine: Machine, probe: Probe) -> str:
        """Ask once; answers why not, nothing if all is well."""
        seconds = probe.timeout_seconds or TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await self._ask(machine, probe)
        except TimeoutError:
            return f"no answer within {seconds} s"
        except (GuestError, ProbeError) as error:
            return str(error)
        return ""

    async def _ask(self, machine: Machine, probe: Probe) -> None:
        """Raises GuestError and ProbeError for a no."""
        if probe.tcp_socket is not None:
            address = probe.tcp_socket.host or machine.facts.address
            line = await self._ports.tcp(address, self._port(probe.tcp_socket))
            line.close()
        elif probe.http_get is not None:
            await self._get(machine, probe.http_get)
        elif probe.exec is not None:
            await _run(machine, probe.exec)
        else:
            await machine.guest.agent.ping()

    def _port(self, action: TCPSocketAction | HTTPGetAction) -> int:
        """The number of a port, which may be the name of one that an interface declares."""
        port = str(action.port)
        if port.isdecimal():
            return int(port)
        assert self._vmi is not None
        for interface in self._vmi.spec.domain.devices.interfaces:
            for declared in interface.ports:
                if declared.name == port:
                    return declared.port
        raise ProbeError(f"no interface has a port named {port!r}")

    async def _get(self, machine: Machine, action: HTTPGetAction) -> None:
        """An HTTP request that is answered with 200 to 399 (core/v1 HTTPGetAction)."""
        address, port = action.host or machine.facts.address, self._port(action)
        tls = _ANY_CERTIFICATE if (action.scheme or "").upper() == "HTTPS" else None
        line = await self._ports.tcp(address, port, tls=tls)
        try:
            await line.write(_request(action, f"{address}:{port}"))
            head = b""
            while b"\n" not in head and len(head) < LONGEST_STATUS_LINE:
                if not (piece := await line.read()):
                    break
                head += piece
        except OSError as error:
            raise ProbeError(f"the connection broke: {error}") from error
        finally:
            line.close()
        code = _status_code(head)
        if not 200 <= code < 400:
            raise ProbeError(f"HTTP probe failed with statuscode: {code or 'none'}")


def _delay_left(probe: Probe, started_at: float) -> float:
    """Seconds until the first question, of which an earlier manager may have waited some.

    Nothing is added, as KubeVirt does for the start of its libvirt: the guest runs already.
    """
    delay = float(probe.initial_delay_seconds)
    return max(0.0, min(delay, started_at + delay - time.time()))


def _request(action: HTTPGetAction, host: str) -> bytes:
    path = action.path or "/"
    headers = {
        "Host": host,
        "User-Agent": "kube-probe/1.37",
        "Accept": "*/*",
        "Connection": "close",
    }
    asked = {header.name: header.value for header in action.httpHeaders or ()}
    names = {name.lower() for name in asked}
    lines = [f"GET {path if path.startswith('/') else f'/{path}'} HTTP/1.1"]
    kept = {name: value for name, value in headers.items() if name.lower() not in names}
    lines += [f"{name}: {value}" for name, value in {**kept, **asked}.items()]
    plain = ("".join(one for one in line if one.isprintable()) for line in lines)
    return "".join(f"{line}\r\n" for line in (*plain, "")).encode("utf-8", "replace")


def _status_code(head: bytes) -> int:
    """The code in the first line of an answer; 0 where it is not HTTP."""
    version, _, rest = head.partition(b"\n")[0].partition(b" ")
    code = rest[:3]
    return int(code) if version.startswith(b"HTTP/1.") and code.isdigit() else 0


async def _run(machine: Machine, action: ExecAction) -> None:
    """A command in the guest that exits with 0."""
    finished = await machine.guest.agent.run(action.command or ())
    if finished.exit_code:
        printed = (finished.output + finished.errors)[: 4 * LONGEST_OUTPUT].decode(errors="replace")
        plain = "".join(one if one.isprintable() else " " for one in printed.strip())
        raise ProbeError(f"the command exited with {finished.exit_code}: {plain[:LONGEST_OUTPUT]}")
