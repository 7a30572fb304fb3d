"""``corral status``: the manager, its nodes and machines, and their problems."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import click
from lightkube.models.core_v1 import Node

from corral import __version__
from corral.api.errors import ApiError
from corral.api.kinds.core.node_pressure import pressures
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.quantity import bytes_of
from corral.api.request import Request, Response
from corral.cli import hints
from corral.cli.errors import Problem, reason as reason_of
from corral.cli.manager import leftover_machines, systemd_unit
from corral.cli.options import data_directory
from corral.cli.output import field, size
from corral.client import kubeconfig
from corral.client.client import Client
from corral.client.transport import Https
from corral.config import Layout
from corral.daemon import lock
from corral.node.status.node_status import (
    ACCELERATOR,
    LIMITS,
    LIMITS_REASON,
    MISSING,
    NETWORK,
    NETWORK_REASON,
    REASON,
    RETIRED,
)
from corral.node.storage import Storage

QUERY_SECONDS = 30.0
NOT_RUNNING: Final = 3
"""Exit code if no manager runs, as ``systemctl status`` has it for an inactive unit."""
_WAITING: Final = frozenset({"", "Pending", "Scheduling"})
"""Phases of VMIs that no node runs yet."""
_CHECKS: Final = {
    "/readyz/audit": ("audit log", "What it is to tell waits in memory"),
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
  0  the manager runs, and machines can be started
  1  something is wrong: it does not answer, a node is not ready, is short
     of something or has no QEMU, an object is damaged, or the audit log
     cannot be written
  2  the options are wrong
  3  no manager runs
What is wrong with the network alone leaves it at 0: machines start all the
same, on QEMU's user network."""


@click.command(epilog=_EPILOG)
@data_directory
def status(layout: Layout) -> None:
    """Show whether corral runs, its nodes and machines, and what is wrong."""
    click.echo(field("corral", __version__))
    click.echo(field("data", str(layout.root)))
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
    for line in (*_node_lines(nodes), *_machine_lines(nodes, machines)):
        click.echo(line)
    click.echo(field("storage", _storage_summary(layout)))
    wrong = _wrong(nodes, faults)
    for each in wrong:
        click.echo(field("wrong", each))
    for reason in dict.fromkeys(filter(None, (_annotation(one, NETWORK_REASON) for one in nodes))):
        click.echo(field("wrong", f"network: {reason}"))
    if wrong:
        raise click.exceptions.Exit(1)


def _node_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a line for each node, then their distinct accelerators, limits and networks."""
    yield from map(_node_line, nodes)
    for title, name, reason in (
        ("runs by", ACCELERATOR, REASON),
        ("limits", LIMITS, LIMITS_REASON),
    ):
        values = (_value_with_reason(node, name, reason) for node in nodes)
        for each in dict.fromkeys(filter(None, values)):
            yield field(title, each)
    for network in dict.fromkeys(filter(None, (_annotation(each, NETWORK) for each in nodes))):
        yield field("network", network)


def _machine_lines(
    nodes: Sequence[Node], machines: Sequence[VirtualMachineInstance]
) -> Iterator[str]:
    yield field("machines", _phases(machines, {_name(node) for node in nodes}))
    for each in _waiting(machines):
        yield field("waiting", each)


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


def _node_line(node: Node) -> str:
    """Return a node's line: name, readiness and capacity.

    A retired node has no capacity: the host's is that of the others.
    """
    if _annotation(node, RETIRED):
        state = "ready" if _is_ready(node) else "NOT READY"
        return field("node", f"{_name(node)}: {state}, takes no machines, goes with its last one")
    capacity = (node.status and node.status.capacity) or {}
    memory = size(bytes_of(str(capacity.get("memory", "0"))))
    short = "".join(f", {each}" for each in pressures(node))
    closed = node.spec is not None and node.spec.unschedulable
    state = (
        ("ready" if _is_ready(node) else "NOT READY")
        + (", takes no machines" if closed else "")
        + short
    )
    return field("node", f"{_name(node)}: {state}; {capacity.get('cpu', '?')} cpus, {memory}")


def _wrong(nodes: Sequence[Node], faults: Iterable[str]) -> list[str]:
    not_ready = (_name(node) for node in nodes if not _is_ready(node))
    wrong = [f"node {name} is not ready: kubectl describe node {name}" for name in not_ready]
    wrong += [
        f"node {_name(node)} has {each}, and starts no machine until that has been over for the "
        "--eviction-pressure-transition-period (5m0s unless corral up named another): "
        f"kubectl describe node {_name(node)}"
        for node in nodes
        for each in pressures(node)
    ]
    wrong += [
        f"node {_name(node)} starts no machine: {missing}"
        for node in nodes
        if (missing := _annotation(node, MISSING))
    ]
    if not nodes:
        wrong.append("no node: machines have nowhere to run; the manager's log may say why")
    return [*wrong, *faults]


def _phases(machines: Iterable[VirtualMachineInstance], nodes: Container[str]) -> str:
    """Return the number of VMIs by phase; apart from VMIs of missing nodes, whose status is old."""
    phases = Counter(
        "of nodes that are gone"
        if each.status.node_name and each.status.node_name not in nodes
        else each.status.phase or "Pending"
        for each in machines
    )
    return ", ".join(f"{count} {phase}" for phase, count in phases.most_common()) or "none"


def _waiting(machines: Iterable[VirtualMachineInstance]) -> list[str]:
    """Return the reasons why VMIs do not start, each with the number of VMIs."""
    titles = {"PodScheduled": "no node", "Synchronized": "no start"}
    reasons = Counter(
        f"{titles[condition.type]}: {condition.message}"
        for each in machines
        if each.status.phase in _WAITING
        for condition in each.status.conditions
        if condition.type in titles and condition.status == "False"
    )
    return [
        f"{count} {'has' if count == 1 else 'have'} {reason}"
        for reason, count in reasons.most_common()
    ]


def _value_with_reason(node: Node, name: str, reason: str) -> str:
    """Return two annotations of a node as ``VALUE: REASON``; empty without the first."""
    value = _annotation(node, name)
    return f"{value}: {_annotation(node, reason)}" if value else ""


def _annotation(node: Node, name: str) -> str:
    annotations: dict[str, str] = (node.metadata and node.metadata.annotations) or {}
    return annotations.get(name, "")


def _name(node: Node) -> str:
    return (node.metadata and node.metadata.name) or ""


def _is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
