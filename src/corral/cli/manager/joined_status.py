"""``corral status`` on a host that has joined the cluster of another: agent, node and server."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import click
from lightkube.models.core_v1 import Node

from corral.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import rfc3339
from corral.cli import hints
from corral.cli.errors import Problem
from corral.cli.manager import leftover_machines, systemd_unit
from corral.cli.manager.node_summary import (
    NOT_RUNNING,
    machine_lines,
    network_problems,
    node_lines,
    node_problems,
)
from corral.cli.output import field
from corral.client.client import Client
from corral.client.https import Https
from corral.config import Layout
from corral.daemon import lock
from corral.daemon.errors import CannotStart
from corral.daemon.membership import CLIENT, SERVING, Membership, certificate_of, config_of

QUERY_SECONDS: Final = 10.0
_TITLES: Final = {CLIENT: "certificate", SERVING: "serving"}


class _Answer(NamedTuple):
    """The API server's view of this node; ``problem`` is set where there is none."""

    nodes: list[Node]
    machines: list[VirtualMachineInstance]
    problem: str = ""


def report(layout: Layout, member: Membership) -> None:
    """Print the state of a joined host.  Raises Problem, and Exit where something is wrong."""
    click.echo(field("joined", f"{member.server}, as node {member.name}"))
    running = lock.find(layout.lock)
    if running is not None:
        click.echo(field("agent", f"process {running.pid}"))
    answer = asyncio.run(_query(layout, member))
    for line in (*_lines(layout, answer, runs=running is not None), *_certificates(layout)):
        click.echo(line)
    if running is None:
        raise _not_running(layout)
    wrong = [*_problems(member, answer), *_expired(layout)]
    if wrong and answer.problem:
        wrong.append(f"the agent's log may say more: {systemd_unit.log_of(layout)}")
    for each in (*wrong, *network_problems(answer.nodes)):
        click.echo(field("wrong", each))
    if wrong:
        raise click.exceptions.Exit(1)


async def _query(layout: Layout, member: Membership) -> _Answer:
    """Ask the API server with the node's own credentials."""
    try:
        async with (
            asyncio.timeout(QUERY_SECONDS),
            Https(config_of(layout, member.server)) as transport,
        ):
            client = Client(transport)
            node = await client.get(Node, member.name)
            labels = f"{NODE_LABEL}={member.name}"
            machines = await client.list(VirtualMachineInstance, labels=labels)
            return _Answer([node], machines.items)
    except TimeoutError:
        return _Answer([], [], f"does not answer within {QUERY_SECONDS:.0f} s")
    except NotFound:
        return _Answer([], [], f"answers, but has no Node {member.name}")
    except (Unauthorized, Forbidden) as error:
        return _Answer([], [], f"refuses this node: {error.message}")
    except CannotStart as error:
        return _Answer([], [], f"cannot be asked: {error.message}")
    except (ApiError, OSError) as error:
        return _Answer([], [], f"does not answer: {error}")


def _lines(layout: Layout, answer: _Answer, *, runs: bool) -> Iterator[str]:
    """Return the lines of server, node and machines.

    Without an agent, the API has machines that may have ended here since.
    """
    yield field("server", answer.problem or "answers")
    yield from node_lines(answer.nodes)
    if answer.nodes and runs:
        yield from machine_lines(answer.nodes, answer.machines)
    elif left := leftover_machines.running_on(layout):
        yield field("machines", left)


def _certificates(layout: Layout) -> Iterator[str]:
    for name, title in _TITLES.items():
        times = certificate_of(layout, name)
        if times is not None:
            yield field(title, f"until {rfc3339(times[1])}, renewed by itself before")


def _expired(layout: Layout) -> Iterator[str]:
    times = certificate_of(layout, CLIENT)
    if times is None:
        yield (
            "the node has no client certificate: corral leave --force, and join again with a token"
        )
    elif times[1] < datetime.now(UTC):
        yield (
            f"the node's certificate ended {rfc3339(times[1])}: delete its Node on the first host "
            "and corral leave --force here, then join again with a token; or set the clock right"
        )


def _problems(member: Membership, answer: _Answer) -> Iterator[str]:
    if answer.problem:
        yield f"{member.server} {answer.problem}; machines run on meanwhile"
    else:
        yield from node_problems(answer.nodes, ())


def _not_running(layout: Layout) -> Problem:
    """Return the error for a missing agent; mentions machines that run without one."""
    if left := leftover_machines.running_on(layout):
        hint = leftover_machines.next_commands(layout)
        return Problem(f"no agent runs here, but {left}", hint, NOT_RUNNING)
    return Problem("no agent runs here", f"Start it: {hints.up(layout)}", NOT_RUNNING)
