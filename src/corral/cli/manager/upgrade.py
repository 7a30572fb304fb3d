"""``corral upgrade machines``: moves machines out of a QEMU that is outdated, while they run."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import click
from lightkube.models.core_v1 import Node

from corral.api.errors import ApiError, Forbidden, NotFound, Unavailable
from corral.api.kinds.core.node_taints import ready_status
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt, migration_settings
from corral.api.kinds.kubevirt.migration import SUCCEEDED, VirtualMachineInstanceMigration
from corral.api.kinds.kubevirt.workload_update import migration_of
from corral.api.kinds.vmi import live_migration
from corral.api.kinds.vmi.launcher import difference, is_outdated, launcher_of_node
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.cli import help_lists, options
from corral.cli.errors import Problem
from corral.cli.output import table
from corral.cli.session import Session
from corral.cli.virtctl.migration import unfinished_migration
from corral.client.client import Client
from corral.reconcile.objects import controller_of, key_of
from corral.reconcile.wait import wait_for

Migration = VirtualMachineInstanceMigration
VMI = VirtualMachineInstance

_HEADER: Final = ("NAMESPACE", "NAME", "NODE", "MOVES", "WHY")
_RETRY_SECONDS, _RETRIES = 1.0, 60
_EPILOG: Final = """\b
Example:
  corral upgrade machines --dry-run
  corral upgrade machines --node host-1

\b
Exit codes:
  0  no machine is outdated (any more), or --dry-run
  1  some stay in an outdated QEMU: the output says why, and what to do"""


@click.group(cls=help_lists.Group)
def upgrade() -> None:
    """Move machines out of a QEMU that is outdated."""


@upgrade.command(epilog=_EPILOG)
@click.option("--node", metavar="NODE", default="", help="Only machines on this node.")
@click.option("--dry-run", is_flag=True, help="List the machines, and move none.")
@options.session
def machines(*, session: Session, node: str, dry_run: bool) -> None:
    """Migrate machines of all namespaces that run in an outdated QEMU, while they run.

    A machine is outdated if its node would start it in another version of QEMU now, or another
    revision of corral has started it. As many migrate at once as the KubeVirt object lets
    (parallelMigrationsPerCluster). Where this command is interrupted, migrations that have begun go
    on; run it again for the others.
    """
    left = asyncio.run(_upgrade(session, node, dry=dry_run))
    if left and not dry_run:
        raise click.exceptions.Exit(1)


async def _upgrade(session: Session, node: str, *, dry: bool) -> int:
    """List outdated machines and move them; return how many stay."""
    async with session.client() as client:
        with session.api_errors("error listing machines and nodes"):
            nodes = {key_of(each).name: each for each in (await client.list(Node)).items}
            vmis = (await client.list(VMI)).items
            parallel = await _parallel(client)
        if node and node not in nodes:
            raise Problem(f"there is no node {node}", "kubectl get nodes lists them.")
        outdated = [
            vmi
            for vmi in vmis
            if is_outdated(vmi, nodes.get(vmi.status.node_name))
            and node in ("", vmi.status.node_name)
        ]
        if not outdated:
            click.echo("no machine is outdated")
            return 0
        obstacles = {vmi.key: obstacle(vmi, nodes.values()) for vmi in outdated}
        for line in listing(outdated, nodes, obstacles):
            click.echo(line)
        movable = [vmi for vmi in outdated if not obstacles[vmi.key]]
        if dry:
            return len(outdated)
        moved = await _move_all(client, movable, parallel)
    staying = len(outdated) - moved
    click.echo(f"{moved} of {len(outdated)} outdated machines moved")
    return staying


async def _parallel(client: Client) -> int:
    """Return how many machines may migrate at once; KubeVirt's default where it may not be read."""
    try:
        installation = await client.get(KubeVirt, KEY.name, KEY.namespace)
    except (NotFound, Forbidden):
        installation = None
    return migration_settings(installation).parallel_migrations_per_cluster or 1


def obstacle(vmi: VMI, nodes: Iterable[Node]) -> str:
    """Return why a machine cannot move; empty if it can."""
    if vmi.status.phase != "Running":
        return f"its phase is {vmi.status.phase}"
    if not live_migration.is_live_migratable(vmi):
        conditions = {each.type: each.message for each in vmi.status.conditions}
        return conditions.get(live_migration.CONDITION) or "it is not known yet whether it can move"
    if not any(key_of(each).name != vmi.status.node_name and _is_open(each) for each in nodes):
        return "no other node is ready, and not cordoned"
    return ""


def listing(
    vmis: Sequence[VMI], nodes: Mapping[str, Node], obstacles: Mapping[Key, str]
) -> Iterator[str]:
    """Yield a table of outdated machines, and a line for each that stays."""
    rows = []
    for vmi in vmis:
        metadata, node = vmi.metadata, vmi.status.node_name
        starts = launcher_of_node(nodes.get(node))
        why = difference(vmi.status.launcher_container_image_version, starts)
        moves = "no" if obstacles[vmi.key] else "yes"
        rows.append((metadata.namespace, metadata.name, node, moves, why))
    yield table(_HEADER, rows)
    for vmi in vmis:
        if why := obstacles[vmi.key]:
            yield f"{vmi.key} stays: {why}. {_remedy(vmi)}"


def _remedy(vmi: VMI) -> str:
    """Return what renews a machine that cannot move."""
    metadata = vmi.metadata
    owner = controller_of(vmi)
    if owner is not None and owner.kind == "VirtualMachine":
        return f"corral restart {metadata.name} -n {metadata.namespace} renews it."
    deletes = f"kubectl delete vmi {metadata.name} -n {metadata.namespace}"
    return f"{deletes} ends it; {'its set starts another' if owner else 'create it again'}."


async def _move_all(client: Client, vmis: Sequence[VMI], parallel: int) -> int:
    """Move machines, so many at once; return how many have moved."""
    waiting, moved, done = iter(vmis), 0, 0

    async def work() -> None:
        nonlocal moved, done
        for vmi in waiting:
            started = time.monotonic()
            try:
                failure = await _move(client, vmi)
            except ApiError as error:
                failure = str(error)
            seconds = time.monotonic() - started
            outcome = f"stays: {failure}" if failure else f"moved in {seconds:.1f} s"
            done += 1
            moved += not failure
            click.echo(f"[{done}/{len(vmis)}] {vmi.key} {outcome}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(parallel, len(vmis))):
            tasks.create_task(work())
    return moved


async def _move(client: Client, vmi: VMI) -> str:
    """Move a machine, unless it moves already; return why that has failed."""
    migration = await unfinished_migration(client, vmi.key)
    if migration is None:
        migration = await client.create(Migration, migration_of(vmi))
    ended = await _ended(client, migration.key)
    if ended is None:
        return "its migration was cancelled"
    if ended.status.phase == SUCCEEDED:
        return ""
    state, key = ended.status.migration_state, ended.key
    said = state.failure_reason if state is not None else ""
    return said or f"kubectl describe vmim {key.name} -n {key.namespace} says why"


async def _ended(client: Client, key: Key) -> Migration | None:
    """Wait for the end of a migration; return None if it is deleted.

    The migration goes on while the API server restarts: a server that does not answer is asked
    again for a minute.  Raises ApiError.
    """
    unanswered = 0
    while True:
        try:
            return await wait_for(client, Migration, key, lambda migration: migration.is_final)
        except NotFound:
            return None
        except Unavailable:
            unanswered += 1
            if unanswered > _RETRIES:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


def _is_open(node: Node) -> bool:
    """Report whether a node is ready, and takes machines."""
    return ready_status(node) == "True" and not (node.spec and node.spec.unschedulable)
