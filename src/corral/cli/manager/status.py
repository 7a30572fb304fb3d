"""``corral status``: what is up, what runs machines, and what is wrong."""

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
from corral.cli.errors import Problem, reason as said_by
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

ASK_SECONDS = 30.0
NOT_RUNNING: Final = 3
_WAITING: Final = frozenset({"", "Pending", "Scheduling"})
"""Phases of machines that no node runs yet."""
"""The exit code where no manager runs: that of ``systemctl status`` for what does not run."""
_GOES_ON: Final = {
    "/readyz/audit": ("audit log", "What it is to tell waits in memory"),
    "/readyz/objects": (
        "damaged on disk",
        "corral restore --damaged brings back what a backup holds, kubectl delete gives it up",
    ),
}
"""What does not stop the server: where it is asked for, what it is about, and what comes of it."""


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
    """Tell whether corral runs, what runs its machines and why, and what is wrong."""
    click.echo(field("corral", __version__))
    click.echo(field("data", str(layout.root)))
    running = lock.find(layout.lock)
    if running is None:
        raise _unmanaged(layout)
    click.echo(field("manager", f"process {running.pid}, {running.url}"))
    try:
        nodes, machines, faults = asyncio.run(_ask(layout))
    except (ApiError, kubeconfig.KubeconfigError, OSError) as error:
        raise Problem(
            f"the manager does not answer: {_why(error)}",
            "Where it has just begun it starts yet. Its log may say why: "
            f"{systemd_unit.log_of(layout)}. If it hangs, kill -9 {running.pid} ends it; its "
            "machines run "
            f"on, and {hints.up(layout)} takes them over.",
        ) from error
    for line in (*_of_nodes(nodes), *_of_machines(nodes, machines)):
        click.echo(line)
    click.echo(field("storage", _stored(layout)))
    wrong = _wrong(nodes, faults)
    for each in wrong:
        click.echo(field("wrong", each))
    for reason in dict.fromkeys(filter(None, (_annotation(one, NETWORK_REASON) for one in nodes))):
        click.echo(field("wrong", f"network: {reason}"))
    if wrong:
        raise click.exceptions.Exit(1)


def _of_nodes(nodes: Sequence[Node]) -> Iterator[str]:
    """What there is to run machines; what several nodes say alike is said once."""
    yield from map(_told, nodes)
    for title, name, why in (("runs by", ACCELERATOR, REASON), ("limits", LIMITS, LIMITS_REASON)):
        for each in dict.fromkeys(filter(None, (_proved(node, name, why) for node in nodes))):
            yield field(title, each)
    for network in dict.fromkeys(filter(None, (_annotation(each, NETWORK) for each in nodes))):
        yield field("network", network)


def _of_machines(
    nodes: Sequence[Node], machines: Sequence[VirtualMachineInstance]
) -> Iterator[str]:
    yield field("machines", _counted(machines, {_name(node) for node in nodes}))
    for each in _waiting(machines):
        yield field("waiting", each)


def _why(error: Exception) -> str:
    """What went wrong between the manager and us; who is out of time has nothing to say."""
    if isinstance(error, TimeoutError):
        return f"not within {ASK_SECONDS:.0f} s"
    return said_by(error) if isinstance(error, OSError) else str(error)


def _unmanaged(layout: Layout) -> Problem:
    """What there is to say where no manager runs: machines may run on without one."""
    if many := leftover_machines.running_on(layout):
        return Problem(
            f"no manager runs here, but {many}", leftover_machines.what_next(layout), NOT_RUNNING
        )
    return Problem("no manager runs here", f"Start one: {hints.up(layout)}", NOT_RUNNING)


def _stored(layout: Layout) -> str:
    """What the disks of claims are promised, and take."""
    storage = Storage(layout.storage)
    room, count = storage.usage(), sum(1 for _ in storage.volumes())
    many = "1 volume" if count == 1 else f"{count} volumes"
    promised, used = size(room.provisioned_bytes), size(room.used_bytes)
    return f"{many}, {promised} promised, {used} used of {size(room.capacity_bytes)}"


async def _ask(layout: Layout) -> tuple[list[Node], list[VirtualMachineInstance], list[str]]:
    """The nodes, the machines, and what the server says is wrong though it goes on."""
    async with asyncio.timeout(ASK_SECONDS), Https(kubeconfig.load(layout.kubeconfig)) as transport:
        client = Client(transport)
        nodes = await client.list(Node)
        machines = await client.list(VirtualMachineInstance)
        said = {
            check: await transport.send(Request(method="GET", path=check)) for check in _GOES_ON
        }
        return list(nodes.items), list(machines.items), _faults(said)


def _faults(said: Mapping[str, Response]) -> list[str]:
    """What is wrong by the answers to the checks."""
    told = {check: _fault(answer) for check, answer in said.items()}
    return [
        f"{_GOES_ON[check][0]}: {fault}. {_GOES_ON[check][1]}"
        for check, fault in told.items()
        if fault
    ]


def _fault(said: Response) -> str:
    """What a check that failed says."""
    if said.status != 500 or not isinstance(said.body, bytes):
        return ""
    return said.body.decode(errors="replace").strip().removeprefix("internal server error: ")


def _told(node: Node) -> str:
    """A node's line: its name, whether it is ready, and its size.

    One that is retired has no size: the host is that of the others.
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
    silent = (_name(node) for node in nodes if not _is_ready(node))
    wrong = [f"node {name} is not ready: kubectl describe node {name}" for name in silent]
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


def _counted(machines: Iterable[VirtualMachineInstance], nodes: Container[str]) -> str:
    """How many machines are in which phase; what is said of those of other nodes is old."""
    phases = Counter(
        "of nodes that are gone"
        if each.status.node_name and each.status.node_name not in nodes
        else each.status.phase or "Pending"
        for each in machines
    )
    return ", ".join(f"{count} {phase}" for phase, count in phases.most_common()) or "none"


def _waiting(machines: Iterable[VirtualMachineInstance]) -> list[str]:
    """Why machines do not start: each reason once, with how many it keeps waiting."""
    told = {"PodScheduled": "no node", "Synchronized": "no start"}
    reasons = Counter(
        f"{told[condition.type]}: {condition.message}"
        for each in machines
        if each.status.phase in _WAITING
        for condition in each.status.conditions
        if condition.type in told and condition.status == "False"
    )
    return [
        f"{count} {'has' if count == 1 else 'have'} {why}" for why, count in reasons.most_common()
    ]


def _proved(node: Node, name: str, reason: str) -> str:
    """What a node has found to work, by the names of its annotations, and why that."""
    named = _annotation(node, name)
    return f"{named}: {_annotation(node, reason)}" if named else ""


def _annotation(node: Node, name: str) -> str:
    said: dict[str, str] = (node.metadata and node.metadata.annotations) or {}
    return said.get(name, "")


def _name(node: Node) -> str:
    return (node.metadata and node.metadata.name) or ""


def _is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
