"""Composes the host: the resources that its nodes share, and the nodes' agents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lightkube.models.core_v1 import Node
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral import pki
from corral.aio import Background
from corral.api.images import HOST_PATHS, IMAGES_PATH, MIGRATIONS_PATH, VOLUMES_PATH
from corral.api.kinds.auth.certificate_signing_request import NODE_USER_PREFIX
from corral.api.kinds.storage.common import SHARED_CAPACITY, SHARED_LABEL, SHARED_PROVISIONER
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.request import User
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.client.server_clock import ServerClock
from corral.config import Layout, Settings
from corral.daemon.component_users import PROVISIONER, node
from corral.daemon.errors import CannotStart
from corral.daemon.network import Networking, destinations
from corral.daemon.nodes import capacity, hypervisor_of, node_names, node_remover, play
from corral.metrics import Registry
from corral.node.agent.agent import Agent, grow_claim
from corral.node.agent.host_parts import HostParts
from corral.node.agent.self_fencing import watchdog
from corral.node.fencing.lease import NodeLease
from corral.node.hollow.streams import EchoNetwork
from corral.node.host.proc import runs
from corral.node.hypervisor import Hypervisor
from corral.node.images.inventory import Inventory
from corral.node.images.peer import Peer
from corral.node.images.peers import Peers
from corral.node.images.serving import ImageServer
from corral.node.images.store import ImageStore
from corral.node.kubelet.migrations import MigrationServer
from corral.node.limits.limits import Limits
from corral.node.machine.migration.host_links import HostLinks
from corral.node.machine.migration.remote_targets import RemoteTargets
from corral.node.machine.migration.source_files import FileCopies
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.helper_processes import Helper
from corral.node.pressure import Pressure
from corral.node.state import machine_record as records
from corral.node.status.node_status import Registration, clock_condition
from corral.node.storage import Storage, StorageError, shared_directory
from corral.node.storage.capacity import FreeCapacity
from corral.node.storage.claim_placement import HostNodes
from corral.node.storage.disk_space import Space
from corral.node.storage.population import Populator, Uploads
from corral.node.storage.population.other_storages import OtherStorages
from corral.node.storage.provision_plan import Backend
from corral.node.storage.provisioner import controller as provisioner
from corral.node.storage.shared_storage import SharedStorage
from corral.node.storage.shared_volume_expansion import SharedVolumeExpansion
from corral.node.storage.volume_serving import VolumeServer
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller

_UPLOADS = "/uploads"
"""Prefix of the paths of uploads, which the API server passes on."""


class Host:
    """Resources that this host's nodes share; ``agents`` by the nodes' names, once started.

    ``uploads`` receives the content of claims, ``sampler`` measures pods and nodes.
    """

    def __init__(self, settings: Settings, network: Networking) -> None:
        self.agents: dict[str, Agent] = {}
        self.uploads = Uploads()
        self.sampler = Sampler()
        self._served: dict[str, ASGIApp] = {}
        """The applications that this host serves to others, by path."""
        self._shared_capacity: FreeCapacity | None = None
        self._settings = settings
        self._network = network

    def mount(self, *, is_first: bool) -> None:
        """Check the shared directory, if there is one.  Raises CannotStart.

        The first host makes an empty one that of its cluster.
        """
        directory, layout = self._settings.shared_storage, self._settings.layout
        if directory is None:
            return
        try:
            if is_first:
                shared_directory.create(directory, self._cluster, layout.shared_storage)
            else:
                shared_directory.check(directory, self._cluster)
        except StorageError as error:
            raise CannotStart(f"--shared-storage: {error.message}", error.hint) from error

    @property
    def _cluster(self) -> str:
        """The hash of the cluster's authority."""
        return pki.public_key_hash(self._settings.layout.authority.read_text())

    def agent_app(self, name: str) -> ASGIApp | None:
        """Return the ASGI app of a node's agent; None if the node is not here."""
        return self.agents[name].asgi if name in self.agents else None

    def node_app(self, name: str) -> ASGIApp:
        """Return the app of the one node of a joined host, with uploads and the host's images."""
        agent = self.agents[name].asgi

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"]
            if path in HOST_PATHS:
                await self.serve(scope, receive, send)
            elif scope["type"] == "http" and path.startswith(_UPLOADS):
                await self.uploads({**scope, "path": path.removeprefix(_UPLOADS)}, receive, send)
            else:
                await agent(scope, receive, send)

        return app

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the images, volumes and migrations of this host to nodes of other hosts."""
        app = self._served.get(scope["path"])
        if app is not None and (scope["type"] == "http" or scope["path"] == MIGRATIONS_PATH):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse("this host has none", 404)(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).close()

    def hypervisors(self) -> list[Hypervisor]:
        """Return the hypervisor of each node."""
        return [agent.hypervisor for agent in self.agents.values()]

    def start(
        self,
        names: Sequence[str],
        gone: dict[str, str],
        *,
        administrator: Client,
        acting: Callable[[User], ControllerContext],
        reach: Callable[[str], Kubeconfig],
        user: str,
        tasks: Background,
        metrics: Registry,
    ) -> list[Controller[Any]]:
        """Start the nodes; return their controllers, which the caller starts.

        ``gone``: nodes without an agent, by name and uid; ``acting`` returns the context of a
        component for its user; ``reach`` returns how this server authenticates to a node, and
        ``user`` as whom.
        """
        context = acting(PROVISIONER)
        peers = self._peers(context, reach, user)
        # The node authorizer of this process lets its nodes read VMIs, which storage may not.
        reader = acting(node(names[0])).client if names else administrator
        parts = self._parts(tasks, peers, context, names, reader)
        controllers = []
        if names:
            controllers = self._volumes(parts, context, tasks, peers, is_first=True)
        removal = node_remover(administrator, gone)
        tasks.start(removal.run(), name=removal.name)
        for name in names:
            agent = self.agents[name] = self._agent(name, parts, acting(node(name)))
            tasks.start(play(agent, administrator, gone, removal), name=name)
            metrics.add(f"node {name}", agent.vmi_metrics.collect)
        tasks.start(self.sampler.run(), name="sampler")
        return controllers

    def start_joined(
        self,
        name: str,
        registration: Registration,
        *,
        context: ControllerContext,
        provisioner_context: ControllerContext,
        first: Peer,
        server: str,
        reach: Callable[[str], Kubeconfig],
        clock: ServerClock,
        tasks: Background,
        metrics: Registry,
    ) -> list[Controller[Any]]:
        """Start the one node of a host that has joined the cluster of another.

        provisioner_context: of the user who writes claims and volumes; server: the URL of the API
        server; clock: that server's.  Returns the controllers that belong to the node, which are
        still to start.
        """
        peers = self._peers(context, reach, f"{NODE_USER_PREFIX}{name}", first, server)
        parts = self._parts(tasks, peers, context, [name], context.client)
        parts = replace(
            parts,
            registration=registration,
            provisioner=provisioner_context.client,
            clock_condition=partial(clock_condition, clock),
        )
        controllers = self._volumes(parts, provisioner_context, tasks, peers, is_first=False)
        if (shared := parts.shared) is not None:
            vmis = context.informers.of(VirtualMachineInstance)
            grow = partial(grow_claim, self.agents.values())
            expansion = SharedVolumeExpansion(
                provisioner_context, vmis, shared.id, shared.node, grow
            )
            controllers.append(expansion.controller)
        directory = self._settings.layout.nodes / name
        agent = self.agents[name] = self._agent(
            name,
            parts,
            context,
            lease=NodeLease(directory),
            watchdog=watchdog(directory, self._register_again),
        )
        tasks.start(agent.run(), name=name)
        metrics.add(f"node {name}", agent.vmi_metrics.collect)
        tasks.start(self.sampler.run(), name="sampler")
        return controllers

    def _peers(
        self,
        context: ControllerContext,
        reach: Callable[[str], Kubeconfig],
        user: str,
        first: Peer | None = None,
        server: str = "",
    ) -> Peers:
        """Return the other hosts."""
        nodes = context.informers.of(Node)
        own = self.agents.__contains__
        return Peers(nodes.items, own=own, reach=reach, user=user, first=first, server=server)

    def _parts(
        self,
        tasks: Background,
        peers: Peers,
        context: ControllerContext,
        names: Sequence[str],
        reader: Client,
    ) -> HostParts:
        """Return the parts that all nodes share; ``reader``: the client that reads VMIs."""
        settings, network, layout = self._settings, self._network, self._settings.layout
        reached = destinations(settings)
        images = ImageStore(layout.images, destinations=reached, option=layout.option, peers=peers)
        self._served[IMAGES_PATH] = ImageServer(images)
        links = HostLinks(peers.reach)
        remote = RemoteTargets(links, FileCopies(links, images.images, images.limits), tasks)
        targets = MigrationTargets(self.agents.__contains__, remote)
        self._served[MIGRATIONS_PATH] = MigrationServer(reader, targets, images.images)
        inventory = Inventory(images, self._register_again)
        tasks.start(images.watch(), name="images")
        tasks.start(inventory.run(), name="listed images")
        pressure = Pressure.of_host(
            settings.eviction_hard,
            layout.root,
            layout.images,
            images,
            transition_seconds=settings.pressure_seconds,
        )
        tasks.start(pressure.run(), name="pressure")
        storage = _storage(settings)
        self._capacity = FreeCapacity(storage, self._register_again)
        tasks.start(self._capacity.run(), name="storage capacity")
        return HostParts(
            images=images,
            listed_images=inventory.listed,
            storage=storage,
            shared=self._shared(storage, context, names, tasks),
            storage_facts=self._storage_facts,
            host_disks=settings.host_disks,
            limits=None if settings.hollow else Limits(layout.root, existing=layout.machines),
            network=EchoNetwork() if settings.hollow else network.connections,
            networks=network.pods,
            network_facts=network.facts,
            destinations=reached,
            sampler=self.sampler,
            pressure=pressure,
            registration=Registration(address=settings.node_address),
            targets=targets,
            moves=network.moves_addresses,
        )

    def _shared(
        self,
        storage: Storage,
        context: ControllerContext,
        names: Sequence[str],
        tasks: Background,
    ) -> SharedStorage | None:
        """Return the shared directory, if this host has one."""
        directory, layout = self._settings.shared_storage, self._settings.layout
        if directory is None or not names:
            return None

        shared = SharedStorage(
            directory,
            self._cluster,
            host=storage.id,
            node=names[0],
            client=context.client,
            machines=_running(layout),
            left=_unreceived(layout),
            publish=self._register_again,
            retry=self._retry_leased,
        )
        tasks.start(shared.run(), name="shared storage")
        return shared

    def _storage_facts(self) -> Mapping[str, str]:
        """Return what the Nodes of this host say of its storages."""
        shared = self._shared_capacity
        return {**self._capacity.annotations(), **(shared.annotations() if shared else {})}

    def _retry_leased(self) -> None:
        for agent in self.agents.values():
            agent.retry_leased()

    def _register_again(self) -> None:
        """Write the Nodes of this host again: a fact of theirs has changed."""
        for agent in self.agents.values():
            agent.register_again()

    def _volumes(
        self,
        parts: HostParts,
        context: ControllerContext,
        tasks: Background,
        peers: Peers,
        *,
        is_first: bool,
    ) -> list[Controller[Any]]:
        """Return the controllers that provision and populate claims.

        Those of a shared directory run on the first host alone.
        """
        assert parts.storage is not None
        grow = partial(grow_claim, self.agents.values())
        host = HostNodes(is_own=self.agents.__contains__, is_first=is_first)
        self._served[VOLUMES_PATH] = VolumeServer(context.client, parts.storages)
        others = OtherStorages(parts.storages, peers.with_storage)
        self._populate(parts, parts.storage, context, tasks, others)
        made = [provisioner(parts.storage, grow, host, self._capacity.changed)(context)]
        if parts.shared is not None and is_first:
            storage = parts.shared.storage
            storage.sweep()
            self._populate(parts, storage, context, tasks, others)
            self._shared_capacity = FreeCapacity(storage, self._register_again, SHARED_CAPACITY)
            tasks.start(self._shared_capacity.run(), name="shared storage capacity")
            backend = Backend(storage.id, SHARED_LABEL, SHARED_PROVISIONER)
            everywhere = HostNodes(selects=False)
            changed = self._shared_capacity.changed
            made.append(provisioner(storage, grow, everywhere, changed, backend=backend)(context))
        return made

    def _populate(
        self,
        parts: HostParts,
        storage: Storage,
        context: ControllerContext,
        tasks: Background,
        others: OtherStorages,
    ) -> None:
        """Start populating the claims of a storage."""
        populator = Populator(
            context,
            storage,
            parts.images,
            self.uploads,
            needed=not self._settings.hollow,
            destinations=parts.destinations,
            others=others,
        )
        tasks.start(populator.run(), name=populator.name)

    def _agent(
        self,
        name: str,
        parts: HostParts,
        context: ControllerContext,
        *,
        lease: NodeLease | None = None,
        watchdog: Helper | None = None,
    ) -> Agent:
        settings = self._settings
        return Agent(
            context,
            name,
            settings.layout.nodes / name,
            parts,
            hypervisor=hypervisor_of(settings, name),
            capacity=capacity(settings),
            boots_at_once=settings.boots,
            retired=name not in node_names(settings),
            lease=lease,
            watchdog=watchdog,
        )


def _storage(settings: Settings) -> Storage:
    """Return the storage; hollow machines write nothing, so theirs reports unlimited space."""
    if settings.hollow:
        storage = Storage(settings.layout.storage, space=lambda _: Space(1 << 50, 1 << 50))
    else:
        storage = Storage(settings.layout.storage)
    storage.sweep()
    return storage


def _running(layout: Layout) -> set[str]:
    """Return the uids of this host's machines that run, and the names of their directories."""
    found = set()
    for of_node in layout.node_directories():
        for directory, record in records.scan(of_node / records.MACHINES):
            if runs(directory):
                found |= {directory.name, record.uid if record is not None else directory.name}
    return found


def _unreceived(layout: Layout) -> set[str]:
    """Return the uids of VMIs whose migration to this host has failed: their guests never ran."""
    return {
        record.uid
        for of_node in layout.node_directories()
        for _, record in records.scan(of_node / records.MACHINES)
        if record is not None and record.arrival and record.never_ran
    }
