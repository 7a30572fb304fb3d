"""The nodes that this host plays: their names, their share of it, and what runs machines there."""

import socket
from collections.abc import Sequence

from lightkube.models.core_v1 import Node

from corral.api.object import Document, Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import node_ranges
from corral.config import Settings
from corral.node import record as records
from corral.node.heartbeat import Capacity, measure
from corral.node.hollow import CAPACITY, Behaviour, Hollow
from corral.node.hypervisor import Hypervisor
from corral.node.qemu.hypervisor import Qemu
from corral.server.app import ApiServer
from corral.server.authn import ADMINISTRATOR

RETIRED = "corral.dev/retired"
"""Annotation of a node that this host plays only for the machines that it still has."""


def node_names(settings: Settings) -> Sequence[str]:
    """The host's name, with a number behind it where there are several nodes."""
    host = socket.gethostname().lower()
    if not settings.controllers:
        return []
    return [host] if settings.nodes == 1 else [f"{host}-{n}" for n in range(settings.nodes)]


async def settle_nodes(settings: Settings, server: ApiServer) -> list[str]:
    """The nodes to play: those that are asked for, and earlier ones that have machines still.

    The host may have been renamed, or ``--nodes`` changed: machines of a node that is no more would
    have nobody in charge.  Such a node goes on, closed to new machines; without any it is deleted.
    """
    wanted = node_names(settings)
    if not wanted:
        return []
    earlier = [
        each.name
        for each in settings.layout.node_directories()
        if each.name not in wanted and records.has_machines(each)
    ]
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    for node in (await client.list(Node)).items:
        name = (node.metadata and node.metadata.name) or ""
        retired = RETIRED in ((node.metadata and node.metadata.annotations) or {})
        if name in earlier and not retired:
            await client.patch(Node, Key("", name), _retirement(retired=True))
        elif name in wanted and retired:
            await client.patch(Node, Key("", name), _retirement(retired=False))
        elif name not in wanted and name not in earlier:
            await client.delete(Node, Key("", name))
    return [*wanted, *earlier]


async def settle_ranges(settings: Settings, server: ApiServer) -> None:
    """Where pods have other addresses than last time, nodes are to get others before they ask."""
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    await node_ranges.take_back(client, settings.pod_cidrs)


def _retirement(*, retired: bool) -> Document:
    """The patch that closes a node to new machines, or opens it again."""
    return {
        "metadata": {"annotations": {RETIRED: "true" if retired else None}},
        "spec": {"unschedulable": True if retired else None},
    }


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
