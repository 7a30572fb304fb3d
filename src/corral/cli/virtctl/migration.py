"""``corral migrate`` and ``migrate-cancel``: a live migration is requested, or cancelled."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import click
from lightkube.models.core_v1 import Node

from corral.api.errors import Forbidden, NotFound
from corral.api.kinds.kubevirt.migration import SELECTOR_LABEL, VirtualMachineInstanceMigration
from corral.api.kinds.kubevirt.migration_kinds import MIGRATION
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.power import dry_run
from corral.cli.virtctl.target import Target, kind_of, parse_target
from corral.client.client import Client, path_of

_HOST_NAME: Final = "kubernetes.io/hostname"


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n  corral migrate testvm\n  corral migrate vmi testvdk4x --to host-2",
)
@click.argument("machine", metavar="[vm|vmi] NAME", nargs=-1, required=True)
@click.option("--to", "node", metavar="NODE", help="The node to migrate to.")
@click.option(
    "--addedNodeSelector",
    "selector",
    metavar="KEY=VALUE",
    default="",
    help="A label that the target node must have, too; several with commas.",
)
@dry_run
@options.session
def migrate(
    *, session: Session, machine: Sequence[str], node: str | None, selector: str, dry_run: bool
) -> None:
    """Migrate a running machine to another node, without a stop.

    The scheduler chooses the node, unless one is named.  kubectl get vmim shows the progress.
    """
    targets = _targets(machine, session.namespace)
    labels = _labels(selector)
    if dry_run:
        click.echo("Dry Run execution")
    name = targets[0].name
    with session.api_errors(f"Error migrating VirtualMachine {name}"):
        target = asyncio.run(_migrate(session, targets, labels, node, dry=dry_run))
    click.echo(f"{target.kind.upper()} {name} was scheduled to migrate")


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral migrate-cancel testvm")
@click.argument("machine", metavar="[vm|vmi] NAME", nargs=-1, required=True)
@dry_run
@options.session
def migrate_cancel(*, session: Session, machine: Sequence[str], dry_run: bool) -> None:
    """Cancel the migration of a machine, which goes on running where it is."""
    target = _targets(machine, session.namespace)[0]
    if dry_run:
        click.echo("Dry Run execution")
    asyncio.run(_cancel(session, target, dry=dry_run))
    click.echo(f"{target.kind.upper()} {target.name} was scheduled to migrate-cancel")


def _targets(machine: Sequence[str], namespace: str) -> list[Target]:
    """Return what a name may stand for, in order: a VM, or else a VMI.  Raises Problem."""
    match machine:
        case [text] if "/" in text:
            return [parse_target(text, namespace)]
        case [name]:
            return [Target(kind, name, namespace) for kind in ("vm", "vmi")]
        case [kind, name]:
            return [Target(kind_of(kind), name, namespace)]
    raise Problem(
        f"accepts 1 arg(s), received {len(machine)}", "Write one NAME, vm NAME or vmi NAME."
    )


def _labels(text: str) -> dict[str, str]:
    """Parse ``key=value,key=value``.  Raises Problem."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if any(not equals or not key for key, equals, _ in pairs):
        raise Problem(
            f"--addedNodeSelector '{text}' is not a list of labels", "Write KEY=VALUE,KEY=VALUE."
        )
    return {key: value for key, _, value in pairs}


async def _migrate(
    session: Session,
    targets: Sequence[Target],
    labels: dict[str, str],
    node: str | None,
    *,
    dry: bool,
) -> Target:
    """Request the migration of the first target that exists; return it.

    Raises ApiError and Problem.
    """
    async with session.client() as client:
        target = await _existing(client, targets)
        if node is not None:
            await _require_elsewhere(client, target, node)
            labels = labels | {_HOST_NAME: await _host_name(client, node)}
        try:
            await _request(client, target, labels, dry=dry)
        except NotFound:  # the VM was there just now: its VMI is not
            if target.kind != "vm":
                raise
            start = f"corral start {target.name} -n {target.namespace} starts it."
            raise Problem(f"VM {target.name} does not run", start) from None
        return target


async def _existing(client: Client, targets: Sequence[Target]) -> Target:
    """Return the first target that exists.  Raises ApiError if none does."""
    for target in targets[:-1]:
        try:
            await client.request("GET", target.own_path)
        except NotFound:
            continue
        return target
    await client.request("GET", targets[-1].own_path)
    return targets[-1]


async def _require_elsewhere(client: Client, target: Target, node: str) -> None:
    """Raise Problem if the machine is on a node already: no migration there would ever start."""
    with contextlib.suppress(NotFound):  # a VM that does not run, which the request reports
        vmi = await client.get(VirtualMachineInstance, target.name, target.namespace)
        if vmi.status.node_name == node:
            raise Problem(f"{target.name} is on the node {node}", "Name another node with --to.")


async def _host_name(client: Client, node: str) -> str:
    """Return the label by which the scheduler finds a node.  Raises Problem if there is none."""
    try:
        found: Node = await client.get(Node, node)
    except NotFound:
        raise Problem(f"there is no node {node}", "kubectl get nodes lists them.") from None
    except Forbidden:  # who may migrate machines need not have a right to see nodes
        return node
    labels: dict[str, str] = (found.metadata and found.metadata.labels) or {}
    return labels.get(_HOST_NAME, node)


async def _request(client: Client, target: Target, labels: dict[str, str], *, dry: bool) -> None:
    if target.kind == "vm":
        document: Document = {"addedNodeSelector": labels, "dryRun": ["All"] if dry else []}
        await client.request("PUT", target.path("migrate"), document=document)
        return
    document = {
        "apiVersion": MIGRATION.api_version,
        "kind": MIGRATION.name,
        "metadata": {"generateName": f"kubevirt-migrate-{target.name}-"},
        "spec": {"vmiName": target.name, "addedNodeSelector": labels},
    }
    path, query = path_of(MIGRATION, Key(target.namespace, "")), "dryRun=All" if dry else ""
    await client.request("POST", path, query=query, document=document)


async def unfinished_migration(client: Client, vmi: Key) -> VirtualMachineInstanceMigration | None:
    """Return the migration of a VMI that is not over, if there is one.  Raises ApiError."""
    selector = f"{SELECTOR_LABEL}={vmi.name}"
    listed = await client.list(VirtualMachineInstanceMigration, vmi.namespace, labels=selector)
    return next((each for each in listed.items if not each.is_final), None)


async def _cancel(session: Session, target: Target, *, dry: bool) -> None:
    """Delete the migration that is not over.  Raises Problem."""
    async with session.client() as client:
        with session.api_errors("Error fetching virtual machine instance migration list"):
            active = await unfinished_migration(client, Key(target.namespace, target.name))
        if active is None:
            raise Problem(f"Found no migration to cancel for {target.name}")
        query = "dryRun=All" if dry else ""
        with session.api_errors(
            f"Error canceling migration {active.metadata.name} of a VirtualMachine {target.name}"
        ):
            await client.request("DELETE", path_of(MIGRATION, active.key), query=query)
