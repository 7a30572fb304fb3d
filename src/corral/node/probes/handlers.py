"""The question of a probe (core/v1 Probe), put to a machine: one of four ways to ask."""

import asyncio
from typing import NamedTuple

from lightkube.models.core_v1 import ExecAction, HTTPGetAction, TCPSocketAction

from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import Finished, GuestAgent, GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.network.guest_ports import Ports
from corral.node.probes import http_probe
from corral.node.probes.http_probe import HttpError
from corral.node.state.facts import Facts

TIMEOUT_SECONDS = 1
"""How long an answer may take where the probe does not say."""
LONGEST_OUTPUT = 200
"""Characters of what a command printed that an event repeats."""
REDIRECTED = "Probe terminated redirects"


class ProbeError(Exception):
    """The answer is no; the message says why."""


class Answer(NamedTuple):
    """Why not, nothing if all is well; and what is odd about a yes."""

    why: str = ""
    warning: str = ""


class Question:
    """What one probe asks, as often as it is told to."""

    def __init__(self, vmi: VirtualMachineInstance, probe: Probe, ports: Ports) -> None:
        self._vmi = vmi
        self._probe = probe
        self._ports = ports
        self._command: asyncio.Task[Finished] | None = None

    async def ask(self, machine: Machine) -> Answer:
        """Ask once, for no longer than the probe says."""
        seconds = self._probe.timeout_seconds or TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return Answer(warning=await self._put(machine))
        except TimeoutError:
            return Answer(why=self._too_late(machine.facts, seconds))
        except (GuestError, HttpError, ProbeError, ValueError) as error:
            return Answer(why=describe(error))

    def close(self) -> None:
        """Wait for no command any more."""
        if self._command is not None:
            self._command.cancel()

    async def _put(self, machine: Machine) -> str:
        """Answers what is odd about a yes.

        Raises GuestError, HttpError and ProbeError for a no.
        """
        probe = self._probe
        if probe.tcp_socket is not None:
            ports = self._ports_for(machine.facts, probe.tcp_socket)
            line = await ports.tcp(*self._place(machine.facts, probe.tcp_socket))
            line.close()
        elif probe.http_get is not None:
            ports = self._ports_for(machine.facts, probe.http_get)
            url = self._url(machine.facts, probe.http_get)
            status = await http_probe.get(ports, url, probe.http_get)
            if not http_probe.succeeds(status):
                raise ProbeError(f"HTTP probe failed with statuscode: {status}")
            return REDIRECTED if status >= 300 else ""
        elif probe.exec is not None:
            await self._run(machine.guest.agent, probe.exec)
        else:
            await machine.guest.agent.ping()
        return ""

    async def _run(self, agent: GuestAgent, action: ExecAction) -> None:
        """A command that exits with 0.

        Nothing can end it in the guest: one that takes too long is waited for the next time, lest
        there be more and more of them, but what it says then comes too late.
        """
        late = self._command is not None and not self._command.done()
        if self._command is None or not late:
            self._command = asyncio.create_task(agent.run(action.command or ()))
            self._command.add_done_callback(_seen)
        finished = await asyncio.shield(self._command)
        if late:
            raise TimeoutError
        if finished.exit_code:
            printed = (finished.output + finished.errors)[: 4 * LONGEST_OUTPUT]
            text = printed.decode(errors="replace").strip()
            plain = "".join(one if one.isprintable() else " " for one in text)
            raise ProbeError(
                f"the command exited with {finished.exit_code}: {plain[:LONGEST_OUTPUT]}"
            )

    def _too_late(self, facts: Facts, seconds: int) -> str:
        if self._probe.tcp_socket is not None:
            address, port = self._place(facts, self._probe.tcp_socket)
            host = f"[{address}]" if ":" in address else address
            return f"dial tcp {host}:{port}: i/o timeout"
        if self._probe.http_get is not None:
            url = self._url(facts, self._probe.http_get)
            late = "Client.Timeout exceeded while awaiting headers"
            return f'Get "{url}": context deadline exceeded ({late})'
        return f"no answer within {seconds} s"

    def _url(self, facts: Facts, action: HTTPGetAction) -> str:
        return http_probe.url_of(action, *self._place(facts, action))

    def _ports_for(self, facts: Facts, action: TCPSocketAction | HTTPGetAction) -> Ports:
        is_own = action.host in (None, "", facts.address)
        return self._ports if is_own else self._ports.external()

    def _place(self, facts: Facts, action: TCPSocketAction | HTTPGetAction) -> tuple[str, int]:
        """Where to ask; a port may be the name of one that an interface declares."""
        address, port = action.host or facts.address, str(action.port)
        if port.isdecimal():
            return address, int(port)
        for interface in self._vmi.spec.domain.devices.interfaces:
            for declared in interface.ports:
                if declared.name == port:
                    return address, declared.port
        raise ProbeError(f"no interface has a port named {port!r}")


def _seen(command: asyncio.Task[Finished]) -> None:
    """That it failed is told to who waits for it; nobody may."""
    if not command.cancelled():
        command.exception()
