"""The nodes that this host plays: their names, their share of it, and what runs machines there."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog
from lightkube.models.core_v1 import Node, Pod

from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import node_ipam
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
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR

LONGEST_SECONDS = 60.0
"""At most so much later what is refused of a node that nobody plays is tried again."""
log = structlog.get_logger()


def node_names(settings: Settings) -> Sequence[str]:
    """The host's name, with a number behind it where there are several nodes."""
    host = settings.node_name or socket.gethostname().lower()
    if not settings.controllers:
        return []
    return [host] if settings.nodes == 1 else [f"{host}-{n}" for n in range(settings.nodes)]


async def settle_nodes(settings: Settings, server: ApiServer) -> tuple[list[str], dict[str, str]]:
    """The nodes to play, and the uids of those that are no more: the rest is up to ``deserted``.

    Those that are asked for are played, and earlier ones that have machines still.  The host may
    have been renamed, or ``--nodes`` changed: machines of a node that is no more would have nobody
    in charge.  Such a node goes on, closed to new machines; without any it is deleted.

    A webhook or policy may refuse that.  It is then as it was: only where the API is served can
    anybody remove what refuses.
    """
    wanted = node_names(settings)
    if not wanted:
        return [], {}
    earlier = [
        directory.name
        for directory in settings.layout.node_directories()
        if directory.name not in wanted and records.has_machines(directory)
    ]
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    gone: dict[str, str] = {}

    async def settle(node: Node) -> None:
        name = (node.metadata and node.metadata.name) or ""
        retired = RETIRED in ((node.metadata and node.metadata.annotations) or {})
        if name in earlier and not retired:
            await client.patch(Node, Key("", name), retirement(retired=True))
        elif name in wanted and retired:
            await client.patch(Node, Key("", name), retirement(retired=False))
        elif name not in wanted and name not in earlier:
            gone[name] = uid_of(node)
            await _delete(client, Node, Key("", name), gone[name])

    if refused := await for_each((await client.list(Node)).items, settle):
        count, error = len(refused), str(refused[0])
        log.warning("nodes stay as they were", count=count, error=error)
    return [*wanted, *earlier], gone


def deserted(server: ApiServer, nodes: Mapping[str, str]) -> Controller[str]:
    """The loop that removes nodes that nobody plays, told by name and uid, and then their pods.

    Who adds to ``nodes`` later adds the name to the loop's queue.

    Nothing runs of these, also where a backup from elsewhere tells so: their machines count as lost
    at once.  What is refused is tried again.
    """
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    queue = WorkQueue[str](first_delay=1.0, longest_delay=LONGEST_SECONDS)
    for name in nodes:
        queue.add(name)

    async def remove(pod: Pod) -> None:
        await _delete(client, Pod, key_of(pod), uid_of(pod))

    async def reconcile(name: str) -> None:
        if not await _delete(client, Node, Key("", name), nodes[name]):
            return  # somebody has made another one, and has a use for its pods
        refused = await for_each(
            (await client.list(Pod, fields=f"spec.nodeName={name}")).items, remove
        )
        if refused:
            raise refused[0]

    return Controller("deserted-nodes", reconcile, queue=queue, sources=(), workers=1)


async def play(
    agent: Agent, server: ApiServer, gone: dict[str, str], removal: Controller[str]
) -> None:
    """Serve a node; once a retired one has no machine left, have ``removal`` delete it.

    Where it cannot be read, as somebody has just deleted it, the manager goes on without: what is
    left of it goes at the next start.
    """
    await agent.run()
    try:
        node = await Client(InProcess(server.handle, ADMINISTRATOR)).get(Node, agent.name)
    except ApiError as error:
        log.warning("retired node not removed", node=agent.name, error=str(error))
        return
    gone[agent.name] = uid_of(node)
    removal.queue.add(agent.name)


async def _delete(client: Client, view: type[Node | Pod], key: Key, uid: str) -> bool:
    """Delete an object at once; False where there is another one of its name by now."""
    try:
        await client.delete(view, key, uid=uid, grace_seconds=0)
    except NotFound:
        pass
    except Conflict:  # a webhook may well say so, too
        with suppress(NotFound):
            if uid_of(await client.get(view, key.name, key.namespace)) == uid:
                raise
            return False
    return True


async def settle_ranges(settings: Settings, server: ApiServer) -> None:
    """Where pods have other addresses than last time, nodes are to get others before they ask."""
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    await node_ipam.release_outside(client, settings.pod_cidrs)


def capacity(settings: Settings) -> Capacity:
    """What each node has to give: an equal share of the host."""
    if settings.hollow:
        return CAPACITY
    host = measure(settings.directory)
    return Capacity(
        cpu=max(1, host.cpu // settings.nodes),
        memory_bytes=host.memory_bytes // settings.nodes,
        storage_bytes=host.storage_bytes // settings.nodes,
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
