"""``corral evacuate-cancel``: cancels the evacuation that a refused eviction has requested."""

import asyncio
from collections.abc import Sequence

import click
from lightkube.models.core_v1 import Node

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.cli import options
from corral.cli.session import Session
from corral.cli.virtctl.power import dry_run
from corral.cli.virtctl.target import Target, kind_of
from corral.client.client import Client

NODES = ("node", "nodes", "no")


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral evacuate-cancel vmi testvdk4x\n"
    "  corral evacuate-cancel node host-1",
)
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@dry_run
@options.session
def evacuate_cancel(*, session: Session, type_: str, name: str, dry_run: bool) -> None:
    """Let a machine stay that an eviction has marked to leave its node.

    TYPE is vm, vmi or node: every machine that is marked to leave that node.
    """
    if dry_run:
        click.echo("Dry Run execution")
    asyncio.run(_cancel(session, type_, name, {"dryRun": ["All"]} if dry_run else {}))


async def _cancel(session: Session, type_: str, name: str, request: Document) -> None:
    async with session.client() as client:
        if type_.lower() in NODES:
            with session.api_errors(f"error getting node {name}"):
                targets = await _evacuating(client, name)
        else:
            kind = kind_of(type_, "Write vm, vmi or node.")
            targets = [Target(kind, name, session.namespace)]
        for target in targets:
            shown = f"{target.kind.upper()} {target.namespace}/{target.name}"
            with session.api_errors(f"error canceling evacuation for {shown}"):
                await client.request("PUT", target.path("evacuate/cancel"), document=request)
            click.echo(f"{shown} was canceled evacuation")


async def _evacuating(client: Client, node: str) -> Sequence[Target]:
    """Return the VMIs of all namespaces that are marked to leave a node."""
    await client.get(Node, node)
    machines = (await client.list(VirtualMachineInstance)).items
    return [
        Target("vmi", machine.metadata.name, machine.metadata.namespace)
        for machine in machines
        if machine.status.evacuation_node_name == node
    ]
