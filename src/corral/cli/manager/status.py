"""``corral status``: the manager, its nodes and machines, and their problems."""

import asyncio
from collections.abc import Mapping
from typing import Final

import click
from lightkube.models.core_v1 import Node

from corral import __version__
from corral.api.errors import ApiError
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.request import Request, Response
from corral.cli import hints
from corral.cli.errors import Problem, reason as reason_of
from corral.cli.manager import joined_status, leftover_machines, systemd_unit
from corral.cli.manager.node_summary import (
    NOT_RUNNING,
    machine_lines,
    network_problems,
    node_lines,
    node_problems,
)
from corral.cli.options import data_directory
from corral.cli.output import field, size
from corral.client import kubeconfig
from corral.client.client import Client
from corral.client.https import Https
from corral.config import Layout
from corral.daemon import lock
from corral.daemon.membership import Membership
from corral.node.storage import Storage

QUERY_SECONDS = 30.0
_CHECKS: Final = {
    "/readyz/audit": ("audit log", "Its entries wait in memory"),
    "/readyz/objects": (
        "damaged on disk",
        "corral restore --damaged brings back what a backup holds, kubectl delete gives it up",
    ),
}
"""Readiness checks that leave the server ready: path → (subject, consequence)."""


_EPILOG: Final = """\b
Example:
  corral status

\b
Exit codes:
  0  the manager runs, or on a joined host the agent, and machines can be
     started
  1  something is wrong: it does not answer, the certificate of a joined
     host has ended, a node is not ready, is under pressure or has no QEMU,
     an object is damaged, or the audit log cannot be written
  2  the options are wrong
  3  no manager or agent runs
A problem of the network alone leaves it at 0: machines start all the same,
on QEMU's user network."""


@click.command(epilog=_EPILOG)
@data_directory
def status(layout: Layout) -> None:
    """Show whether corral runs, its nodes, machines and problems."""
    click.echo(field("corral", __version__))
    click.echo(field("data", str(layout.root)))
    if (member := Membership.load(layout)) is not None:
        joined_status.report(layout, member)
        return
    running = lock.find(layout.lock)
    if running is None:
        raise _not_running(layout)
    click.echo(field("manager", f"process {running.pid}, {running.url}"))
    try:
        nodes, machines, faults = asyncio.run(_query(layout))
    except (ApiError, kubeconfig.KubeconfigError, OSError) as error:
        raise Problem(
            f"the manager does not answer: {_cause(error)}",
            "Where it has just begun it starts yet. Its log may say why: "
            f"{systemd_unit.log_of(layout)}. If it hangs, kill -9 {running.pid} ends it; its "
            "machines run "
            f"on, and {hints.up(layout)} takes them over.",
        ) from error
    for line in (*node_lines(nodes), *machine_lines(nodes, machines)):
        click.echo(line)
    click.echo(field("storage", _storage_summary(layout)))
    wrong = node_problems(nodes, faults)
    for each in (*wrong, *network_problems(nodes)):
        click.echo(field("wrong", each))
    if wrong:
        raise click.exceptions.Exit(1)


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):  # its text is empty
        return f"not within {QUERY_SECONDS:.0f} s"
    return reason_of(error) if isinstance(error, OSError) else str(error)


def _not_running(layout: Layout) -> Problem:
    """Return the error for a missing manager; mentions machines that run without one."""
    if leftover := leftover_machines.running_on(layout):
        hint = leftover_machines.next_commands(layout)
        return Problem(f"no manager runs here, but {leftover}", hint, NOT_RUNNING)
    return Problem("no manager runs here", f"Start one: {hints.up(layout)}", NOT_RUNNING)


def _storage_summary(layout: Layout) -> str:
    storage = Storage(layout.storage)
    usage, count = storage.usage(), sum(1 for _ in storage.volumes())
    volumes = "1 volume" if count == 1 else f"{count} volumes"
    provisioned, used = size(usage.provisioned_bytes), size(usage.used_bytes)
    return f"{volumes}, {provisioned} promised, {used} used of {size(usage.capacity_bytes)}"


async def _query(layout: Layout) -> tuple[list[Node], list[VirtualMachineInstance], list[str]]:
    """Return the nodes, the VMIs, and the failed checks of the server."""
    async with (
        asyncio.timeout(QUERY_SECONDS),
        Https(kubeconfig.load(layout.kubeconfig)) as transport,
    ):
        client = Client(transport)
        nodes = await client.list(Node)
        machines = await client.list(VirtualMachineInstance)
        responses = {
            check: await transport.send(Request(method="GET", path=check)) for check in _CHECKS
        }
        return list(nodes.items), list(machines.items), _faults(responses)


def _faults(responses: Mapping[str, Response]) -> list[str]:
    """Return the messages of failed checks."""
    faults = {check: _fault(response) for check, response in responses.items()}
    return [
        f"{_CHECKS[check][0]}: {fault}. {_CHECKS[check][1]}"
        for check, fault in faults.items()
        if fault
    ]


def _fault(response: Response) -> str:
    """Return the message of a check; empty if it passed."""
    if response.status != 500 or not isinstance(response.body, bytes):
        return ""
    return response.body.decode(errors="replace").strip().removeprefix("internal server error: ")
