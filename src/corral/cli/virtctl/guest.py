"""``corral guestosinfo``, ``userlist`` and ``fslist``: information from the guest agent."""

import asyncio
import json

import click

from corral.cli import options
from corral.cli.session import Session
from corral.cli.virtctl.target import vmi_target


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral guestosinfo testvdk4x")
@click.argument("name")
@options.session
def guestosinfo(*, session: Session, name: str) -> None:
    """Show the guest's operating system, as its agent reports it."""
    _show(session, name, "guestosinfo", "guestosinfo")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral userlist testvdk4x")
@click.argument("name")
@options.session
def userlist(*, session: Session, name: str) -> None:
    """List the users who are logged in to the guest, as its agent reports them."""
    _show(session, name, "userlist", "user list")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral fslist testvdk4x")
@click.argument("name")
@options.session
def fslist(*, session: Session, name: str) -> None:
    """List the guest's file systems, as its agent reports them."""
    _show(session, name, "filesystemlist", "filesystem list")


def _show(session: Session, name: str, subresource: str, title: str) -> None:
    target = vmi_target(name, session.namespace)

    async def get() -> bytes:
        async with session.client() as client:
            return await client.request("GET", target.path(subresource))

    with session.api_errors(f"Error getting {title} of VirtualMachineInstance {target.name}"):
        body = asyncio.run(get())
    click.echo(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
