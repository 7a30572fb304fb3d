"""``corral pause``, ``unpause``, ``soft-reboot`` and ``reset``: what a machine is told to do."""

import asyncio

import click

from corral.cli import options
from corral.cli.session import Session
from corral.cli.virtctl.target import Target, kind_of, machine


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral pause vmi testvdk4x")
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@options.session
def pause(*, session: Session, type_: str, name: str) -> None:
    """Stop a machine's processors; its memory is kept.

    TYPE is vmi or vm.
    """
    _tell_typed(session, type_, name, "pause", "pausing")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral unpause vmi testvdk4x")
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@options.session
def unpause(*, session: Session, type_: str, name: str) -> None:
    """Let a paused machine go on.

    TYPE is vmi or vm.
    """
    _tell_typed(session, type_, name, "unpause", "unpausing")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral soft-reboot testvdk4x")
@click.argument("name")
@options.session
def soft_reboot(*, session: Session, name: str) -> None:
    """Ask the guest to restart, by its agent or its power button."""
    where = machine(name, session.namespace)
    asyncio.run(_tell(session, where, "softreboot", "soft rebooting"))
    click.echo(f"VMI {where.name} was scheduled to soft-reboot")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral reset testvdk4x")
@click.argument("name")
@options.session
def reset(*, session: Session, name: str) -> None:
    """Restart a machine as its reset button does: the guest is not asked."""
    where = machine(name, session.namespace)
    asyncio.run(_tell(session, where, "reset", "reseting"))
    click.echo(f"VMI {where.name} was scheduled to reset")


def _tell_typed(session: Session, type_: str, name: str, subresource: str, doing: str) -> None:
    where = Target(kind_of(type_), name, session.namespace)
    if where.kind == "vm":
        where = asyncio.run(_machine_of(session, where))
    asyncio.run(_tell(session, where, subresource, doing))
    click.echo(f"VMI {where.name} was scheduled to {subresource}")


async def _machine_of(session: Session, vm: Target) -> Target:
    """The machine of a VirtualMachine that there is: its namesake."""
    with session.api_errors(f"Error getting VirtualMachine {vm.name}"):
        async with session.client() as client:
            await client.request("GET", vm.own_path)
    return Target("vmi", vm.name, vm.namespace)


async def _tell(session: Session, where: Target, subresource: str, doing: str) -> None:
    with session.api_errors(f"Error {doing} VirtualMachineInstance {where.name}"):
        async with session.client() as client:
            await client.request("PUT", where.path(subresource))
