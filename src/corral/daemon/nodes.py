"""The nodes of this process: names, capacity and hypervisors; removal of nodes that are no more."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog
from lightkube.models.core_v1 import Node, Pod

from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.kinds.core.node_addresses import kubelet_port
from corral.api.object import Key
from corral.client.client import Client
from corral.config import Settings
from corral.node.agent.agent import Agent
from corral.node.hollow.hypervisor import CAPACITY, Behaviour, Hollow
from corral.node.hypervisor import Hypervisor
from corral.node.qemu.hypervisor import Qemu
from corral.node.state import machine_record as records
from corral.node.status.node_status import RETIRED, Capacity, measure, retirement
from corral.reconcile.batch import for_each
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

MAX_RETRY_SECONDS = 60.0
"""Maximum delay before a refused removal is tried again."""
log = structlog.get_logger()


def node_names(settings: Settings) -> Sequence[str]:
    """Return the names of the nodes of this process: the host's, numbered if there are several."""
    host = settings.node_name or socket.gethostname().lower()
    if not settings.controllers:
        return []
    return [host] if settings.nodes == 1 else [f"{host}-{n}" for n in range(settings.nodes)]


async def sync_nodes(settings: Settings, client: Client) -> tuple[list[str], dict[str, str]]:
    """Return the names of the nodes to run, and the uids of removed nodes for ``node_remover``.

    A node of an earlier start whose machines still run goes on as a retired node: the host may have
    been renamed, or ``--nodes`` changed, and its machines need an agent.  Other nodes of this host
    are deleted; those of hosts that joined stay.

    A webhook or policy may refuse that.  The start goes on all the same: the webhook can only be
    removed once the API is served.
    """
    current = node_names(settings)
    if not current:
        return [], {}
    earlier = [
        directory.name
        for directory in settings.layout.node_directories()
        if directory.name not in current and records.has_machines(directory)
    ]
    gone: dict[str, str] = {}

    async def sync(node: Node) -> None:
        name = (node.metadata and node.metadata.name) or ""
        retired = RETIRED in ((node.metadata and node.metadata.annotations) or {})
        if name in earlier and not retired:
            await client.patch(Node, Key("", name), retirement(retired=True))
        elif name in current and retired:
            await client.patch(Node, Key("", name), retirement(retired=False))
        elif name not in current and name not in earlier and not is_joined(node):
            gone[name] = uid_of(node)
            await _delete(client, Node, Key("", name), gone[name])

    if refused := await for_each((await client.list(Node)).items, sync):
        count, error = len(refused), str(refused[0])
        log.warning("nodes not updated", count=count, error=error)
    return [*current, *earlier], gone


def is_joined(node: Node) -> bool:
    """Return whether a node is another host's: only those serve an API of their own."""
    return bool(kubelet_port(node))


def node_remover(client: Client, nodes: Mapping[str, str]) -> Controller[str]:
    """Return the controller that deletes removed nodes, given by name and uid, then their pods.

    To remove another node, add it to ``nodes`` and its name to the controller's queue.  No agent
    serves these nodes, so their VMIs count as lost at once, also after a backup of another host was
    restored.
    """
    queue = WorkQueue[str](first_delay=1.0, longest_delay=MAX_RETRY_SECONDS)
    for name in nodes:
        queue.add(name)

    async def remove(pod: Pod) -> None:
        await _delete(client, Pod, key_of(pod), uid_of(pod))

    async def reconcile(name: str) -> None:
        if not await _delete(client, Node, Key("", name), nodes[name]):
            return  # a new Node of this name owns the pods
        refused = await for_each(
            (await client.list(Pod, fields=f"spec.nodeName={name}")).items, remove
        )
        if refused:
            raise refused[0]

    return Controller("node_remover-nodes", reconcile, queue=queue, sources=(), workers=1)


async def play(
    agent: Agent, client: Client, gone: dict[str, str], removal: Controller[str]
) -> None:
    """Run the agent of a node; delete a retired one through ``removal`` after its last machine.

    If the Node cannot be read, for example because it was just deleted, its remains are deleted at
    the next start.
    """
    await agent.run()
    try:
        node = await client.get(Node, agent.name)
    except ApiError as error:
        log.warning("retired node not removed", node=agent.name, error=str(error))
        return
    gone[agent.name] = uid_of(node)
    removal.queue.add(agent.name)


async def _delete(client: Client, view: type[Node | Pod], key: Key, uid: str) -> bool:
    """Delete an object without grace; return False if another one has its name by now."""
    try:
        await client.delete(view, key, uid=uid, grace_seconds=0)
    except NotFound:
        pass
    except Conflict:  # of the uid, unless a webhook answered it
        with suppress(NotFound):
            if uid_of(await client.get(view, key.name, key.namespace)) == uid:
                raise
            return False
    return True


async def release_foreign_ranges(settings: Settings, client: Client) -> None:
    """Release pod ranges outside the CIDRs, which may have changed, before nodes use them."""
    from corral.cluster import node_ipam  # noqa: PLC0415 - of no use to a joined node

    await node_ipam.release_outside(client, settings.pod_cidrs)


def capacity(settings: Settings) -> Capacity:
    """Return the capacity of each node: an equal share of the host."""
    overcommit = settings.overcommit_percent
    if settings.hollow:
        return replace(CAPACITY, overcommit_percent=overcommit)
    host = measure(settings.directory)
    return Capacity(
        cpu=max(1, host.cpu // settings.nodes),
        memory_bytes=host.memory_bytes // settings.nodes,
        storage_bytes=host.storage_bytes // settings.nodes,
        overcommit_percent=overcommit,
    )


def hypervisor_of(settings: Settings, name: str) -> Hypervisor:
    if settings.hollow is None:
        return Qemu(settings.layout.nodes / name)
    hollow = settings.hollow
    return Hollow(
        Behaviour(
            boot_seconds=hollow.boot_seconds,
            start_failures=hollow.failure_rate,
            seed=hollow.seed,
        )
    )
