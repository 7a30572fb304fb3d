"""Probe handlers (core/v1 Probe): TCP, HTTP, exec, and KubeVirt's guest agent ping."""

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
"""Timeout of a probe that sets none."""
MAX_OUTPUT_CHARACTERS = 200
"""Characters of a command's output that an event contains."""
REDIRECTED = "Probe terminated redirects"


class ProbeError(Exception):
    """A failed probe; the message is the reason."""


class ProbeResult(NamedTuple):
    """The reason of a failure, empty for success; and a warning about a success."""

    failure: str = ""
    warning: str = ""


class ProbeHandler:
    """Runs one probe repeatedly."""

    def __init__(self, vmi: VirtualMachineInstance, probe: Probe, ports: Ports) -> None:
        self._vmi = vmi
        self._probe = probe
        self._ports = ports
        self._command: asyncio.Task[Finished] | None = None

    async def run(self, machine: Machine) -> ProbeResult:
        """Run the probe once, within its timeout."""
        seconds = self._probe.timeout_seconds or TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return ProbeResult(warning=await self._probe_once(machine))
        except TimeoutError:
            return ProbeResult(failure=self._timeout_message(machine.facts, seconds))
        except (GuestError, HttpError, ProbeError, ValueError) as error:
            return ProbeResult(failure=describe(error))

    def close(self) -> None:
        """Stop waiting for a command."""
        if self._command is not None:
            self._command.cancel()

    async def _probe_once(self, machine: Machine) -> str:
        """Run the probe once; return a warning, if any.

        Raises GuestError, HttpError and ProbeError for a failure.
        """
        probe = self._probe
        if probe.tcp_socket is not None:
            ports = self._ports_for(machine.facts, probe.tcp_socket)
            line = await ports.tcp(*self._target(machine.facts, probe.tcp_socket))
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
        """Run a command, which must exit with 0.

        A command cannot be killed in the guest: after a timeout the next probe waits for the same
        command, so that they do not pile up, and fails even if it then exits.
        """
        is_late = self._command is not None and not self._command.done()
        if self._command is None or not is_late:
            self._command = asyncio.create_task(agent.run(action.command or ()))
            self._command.add_done_callback(_ignore_exception)
        finished = await asyncio.shield(self._command)
        if is_late:
            raise TimeoutError
        if finished.exit_code:
            printed = (finished.output + finished.errors)[: 4 * MAX_OUTPUT_CHARACTERS]
            text = printed.decode(errors="replace").strip()
            printable = "".join(character if character.isprintable() else " " for character in text)
            raise ProbeError(
                f"the command exited with {finished.exit_code}: {printable[:MAX_OUTPUT_CHARACTERS]}"
            )

    def _timeout_message(self, facts: Facts, seconds: int) -> str:
        if self._probe.tcp_socket is not None:
            address, port = self._target(facts, self._probe.tcp_socket)
            host = f"[{address}]" if ":" in address else address
            return f"dial tcp {host}:{port}: i/o timeout"
        if self._probe.http_get is not None:
            url = self._url(facts, self._probe.http_get)
            is_late = "Client.Timeout exceeded while awaiting headers"
            return f'Get "{url}": context deadline exceeded ({is_late})'
        return f"no answer within {seconds} s"

    def _url(self, facts: Facts, action: HTTPGetAction) -> str:
        return http_probe.url_of(action, *self._target(facts, action))

    def _ports_for(self, facts: Facts, action: TCPSocketAction | HTTPGetAction) -> Ports:
        is_own = action.host in (None, "", facts.address)
        return self._ports if is_own else self._ports.external()

    def _target(self, facts: Facts, action: TCPSocketAction | HTTPGetAction) -> tuple[str, int]:
        """Return the address and the port; a port may be the name of an interface's port."""
        address, port = action.host or facts.address, str(action.port)
        if port.isdecimal():
            return address, int(port)
        for interface in self._vmi.spec.domain.devices.interfaces:
            for declared in interface.ports:
                if declared.name == port:
                    return address, declared.port
        raise ProbeError(f"no interface has a port named {port!r}")


def _ignore_exception(command: asyncio.Task[Finished]) -> None:
    """Retrieve the exception of a command for which nobody waits any more."""
    if not command.cancelled():
        command.exception()
