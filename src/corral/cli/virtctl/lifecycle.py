"""``corral pause``, ``unpause``, ``soft-reboot`` and ``reset``."""

import asyncio

import click

from corral.cli import options
from corral.cli.session import Session
from corral.cli.virtctl.target import Target, kind_of, vmi_target


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral pause vmi testvdk4x")
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@options.session
def pause(*, session: Session, type_: str, name: str) -> None:
    """Stop a machine's processors; its memory is kept.

    TYPE is vmi or vm.
    """
    _request_by_type(session, type_, name, "pause", "pausing")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral unpause vmi testvdk4x")
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@options.session
def unpause(*, session: Session, type_: str, name: str) -> None:
    """Let a paused machine go on.

    TYPE is vmi or vm.
    """
    _request_by_type(session, type_, name, "unpause", "unpausing")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral soft-reboot testvdk4x")
@click.argument("name")
@options.session
def soft_reboot(*, session: Session, name: str) -> None:
    """Ask the guest to restart, by its agent or its power button."""
    target = vmi_target(name, session.namespace)
    asyncio.run(_request(session, target, "softreboot", "soft rebooting"))
    click.echo(f"VMI {target.name} was scheduled to soft-reboot")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral reset testvdk4x")
@click.argument("name")
@options.session
def reset(*, session: Session, name: str) -> None:
    """Restart a machine as its reset button does: the guest is not asked."""
    target = vmi_target(name, session.namespace)
    asyncio.run(_request(session, target, "reset", "reseting"))
    click.echo(f"VMI {target.name} was scheduled to reset")


def _request_by_type(
    session: Session, type_: str, name: str, subresource: str, gerund: str
) -> None:
    target = Target(kind_of(type_), name, session.namespace)
    if target.kind == "vm":
        target = asyncio.run(_vmi_of(session, target))
    asyncio.run(_request(session, target, subresource, gerund))
    click.echo(f"VMI {target.name} was scheduled to {subresource}")


async def _vmi_of(session: Session, vm: Target) -> Target:
    """Return the VMI of an existing VirtualMachine, which has the same name."""
    with session.api_errors(f"Error getting VirtualMachine {vm.name}"):
        async with session.client() as client:
            await client.request("GET", vm.own_path)
    return Target("vmi", vm.name, vm.namespace)


async def _request(session: Session, target: Target, subresource: str, gerund: str) -> None:
    with session.api_errors(f"Error {gerund} VirtualMachineInstance {target.name}"):
        async with session.client() as client:
            await client.request("PUT", target.path(subresource))
