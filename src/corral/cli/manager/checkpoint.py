"""``corral checkpoint`` and ``corral fork``: machines that start from a running one."""

import asyncio
import secrets
from contextlib import suppress
from typing import Final

import click
import msgspec

from corral.api.errors import NotFound
from corral.api.kinds import kind_of
from corral.api.kinds.corral.checkpoint import FAILED, READY, VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_of
from corral.api.kinds.vmi.fork_state import PENDING, forked
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.target import vmi_target
from corral.client.client import Client, path_of
from corral.client.next_version import next_version

SECONDS: Final = 330.0
"""Time that a checkpoint may take."""
FORK_SECONDS: Final = 300.0
"""Time that a fork may take to start, beside the others."""


@click.group(epilog="\b\nExample:\n  corral checkpoint create base --from vmi/testvdk4x")
def checkpoint() -> None:
    """Keep the memory and disks of a running machine, for others to start from."""


@checkpoint.command(
    cls=options.Command, epilog="\b\nExample:\n  corral checkpoint create base --from vmi/testvdk4x"
)
@click.argument("name")
@click.option("--from", "source", required=True, metavar="VMI", help="The running VMI.")
@options.session
def create(*, session: Session, name: str, source: str) -> None:
    """Make a checkpoint of a machine, and wait until it is complete."""
    target = vmi_target(source, session.namespace)

    async def run() -> None:
        async with session.client() as client:
            with session.api_errors():
                await client.get(VirtualMachineInstance, target.name, target.namespace)
                made = await _make(client, Key(target.namespace, name), target.name)
        mebibytes = made.status.size_bytes >> 20
        click.echo(
            f"checkpoint {name} is complete: {mebibytes} MiB on node {made.status.node_name}"
        )

    asyncio.run(run())


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral fork testvdk4x --count 20")
@click.argument("vmi")
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="How many copies.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until each is a machine of its own.")
@options.session
def fork(*, session: Session, vmi: str, count: int, wait: bool) -> None:
    """Start copies of a running machine, each with a name, keys and address of its own.

    They go on where it is now. The checkpoint that they start from stays: kubectl delete
    vmcheckpoint removes it. The exit code is 1 if one of them could not start from it, and booted.
    """
    target = vmi_target(vmi, session.namespace)

    async def run() -> None:
        async with session.client() as client:
            with session.api_errors():
                source = await _document(client, Key(target.namespace, target.name))
                name = f"{target.name[:200]}-{secrets.token_hex(3)}"
                made = await _make(client, Key(target.namespace, name), target.name)
                click.echo(f"checkpoint {name} is complete")
                document = fork_of(source, made)
                forks = [
                    await client.create(VirtualMachineInstance, document) for _ in range(count)
                ]
                if not wait:
                    for each in forks:
                        click.echo(f"vmi {each.metadata.name} starts from it")
                    return
                results = await asyncio.gather(*(_started(client, each) for each in forks))
                if failed := results.count(False):
                    raise Problem(f"{failed} of {count} copies are no machines of their own")

    asyncio.run(run())


async def _started(client: Client, vmi: VirtualMachineInstance) -> bool:
    """Wait until a fork has started, and print how; return whether it is a machine of its own."""
    name = vmi.metadata.name
    try:
        async with asyncio.timeout(FORK_SECONDS):
            while (condition := forked(vmi)) is None or condition.reason == PENDING:
                if vmi.is_final:
                    click.echo(f"vmi {name} has ended")
                    return False
                vmi = await next_version(client, vmi)
    except NotFound:
        click.echo(f"vmi {name} was deleted")
        return False
    except TimeoutError:
        click.echo(f"vmi {name} has not started yet: kubectl describe vmi {name} says why")
        return False
    if condition.status == "True":
        click.echo(f"vmi {name} is a machine of its own")
        return True
    click.echo(f"vmi {name}: {condition.message or condition.reason}")
    return False


async def _document(client: Client, key: Key) -> Document:
    """Return a VMI with all fields, also those that this version has no view of."""
    body = await client.request("GET", path_of(kind_of(VirtualMachineInstance), key))
    return msgspec.json.decode(body, type=Document)


async def _make(client: Client, key: Key, source: str) -> VirtualMachineCheckpoint:
    """Create a checkpoint, and wait until it is complete.  Raises ApiError and Problem."""
    view = VirtualMachineCheckpoint
    document = {
        "apiVersion": view.api_version,
        "kind": view.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"source": {"kind": VirtualMachineInstance.kind, "name": source}},
    }
    found = await client.create(view, document)
    try:
        async with asyncio.timeout(SECONDS):
            while not found.is_final:
                found = await next_version(client, found)
    except TimeoutError as error:
        message = _why(found) or "its node does not report it"
        hint = f"it may be later; kubectl delete vmcheckpoint {key.name} gives it up"
        raise Problem(f"checkpoint {key.name} is not complete: {message}; {hint}") from error
    if found.has(FAILED):
        with suppress(NotFound):  # it never changes: the next attempt takes its name
            await client.delete(view, key, uid=found.metadata.uid)
        raise Problem(f"checkpoint {key.name} has failed: {_why(found)}")
    return found


def _why(found: VirtualMachineCheckpoint) -> str:
    """Return the message of the condition that is not as it should be; empty if there is none."""
    conditions = {one.type: one for one in found.status.conditions}
    shown = conditions.get(FAILED) or conditions.get(READY)
    return f"{shown.message or shown.reason}" if shown is not None else ""
