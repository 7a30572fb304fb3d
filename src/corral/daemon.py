"""Composition root: opens the rooms and joins them; the only module that knows every room."""

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import SSLContext

import structlog
from lightkube.models.core_v1 import Namespace, Node

from corral import __version__, pki
from corral.aio import Background
from corral.api.errors import AlreadyExists, ApiError
from corral.api.kinds import cdiconfig
from corral.api.kinds.cdiconfig import CDIConfig
from corral.api.kinds.usage import NODE_METRICS, POD_METRICS
from corral.api.object import Document, Key
from corral.api.wire import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import STAND_INS, accounts, node_ranges
from corral.config import Settings
from corral.controllers import CONTROLLERS, SOURCES
from corral.metrics import Registry, process
from corral.networking import Networking, api_names
from corral.node import record as records
from corral.node.agent import Agent
from corral.node.growth import grow
from corral.node.heartbeat import Capacity, measure
from corral.node.hollow import CAPACITY, Behaviour, Echoes, Hollow
from corral.node.hypervisor import Hypervisor
from corral.node.images.store import ImageStore
from corral.node.limits.limits import Limits
from corral.node.qemu.hypervisor import Qemu
from corral.node.sampling.sampler import Sampler
from corral.node.storage import Storage
from corral.node.storage.filling import Fillings, Uploads
from corral.node.storage.loop import controller as provisioner
from corral.node.storage.room import Space
from corral.reconcile import metrics as loops
from corral.reconcile.world import World
from corral.server.adapter import Adapter, RulesError
from corral.server.allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn import ADMINISTRATOR, Authenticator
from corral.server.serve import ServeError, listening, tls_context
from corral.store import LogError, Store

DAY_SECONDS = 86400
EVENT_SECONDS = 3600
"""How long events are kept, as in Kubernetes."""
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "kubevirt")
"""Namespaces that are always there: Kubernetes', and the one that KubeVirt's components use."""
RETIRED = "corral.dev/retired"
"""Annotation of a node that this host plays only for the machines that it still has."""

CONTROLLER = User(
    name="system:serviceaccount:kubevirt:kubevirt-controller",
    groups=("system:serviceaccounts", "system:authenticated"),
)
PROVISIONER = User(
    name="system:serviceaccount:corral:storage",
    groups=("system:serviceaccounts", "system:authenticated"),
)
STAND_IN = User(name="system:kube-controller-manager", groups=("system:authenticated",))
"""Who the stand-ins for Kubernetes' own loops are, and who reads for everybody in this process."""

log = structlog.get_logger()


@dataclass(eq=False)
class CannotStart(Exception):
    """Why the manager cannot start, and what to do."""

    message: str
    hint: str = ""


async def run(
    settings: Settings,
    network: Networking,
    announce: Callable[[dict[str, str]], None],
) -> None:
    """Run everything until SIGTERM or SIGINT; machines run on afterwards.

    ``announce`` is called once when the API is ready, with lines for people.  Raises CannotStart.
    """
    layout = settings.layout
    adapter = _adapter(settings)
    try:
        identity = pki.ensure(layout.pki, api_names(settings))
        store = Store.open(layout.store, lifetimes={"events": EVENT_SECONDS})
    except (pki.PkiError, LogError) as error:
        raise CannotStart(str(error)) from error
    agents: dict[str, Agent] = {}
    uploads, sampler, metrics = Uploads(), Sampler(), Registry(process=process)
    server = ApiServer(
        store,
        authenticator=Authenticator({identity.token: ADMINISTRATOR}),
        nodes=lambda name: agents[name].asgi if name in agents else None,
        services=ServiceRanges(networks=network.service_cidrs()),
        account_key=identity.account_key,
        uploads=uploads,
        metrics=metrics,
        adapter=adapter,
        observed={
            POD_METRICS.resource: sampler.pod_metrics,
            NODE_METRICS.resource: sampler.node_metrics,
        },
    )
    _raise_descriptor_limit()
    ended = _ended()
    try:
        await _make_namespaces(server)
        names = await _settle_nodes(settings, server)
        await _settle_ranges(settings, server)
        await network.prepare()
        tls = tls_context(identity.certificate, identity.key)
        app = App(server)
        async with (
            listening(app, settings.address, settings.port, tls) as (host, port),
            network.listening(app, tls),
            nullcontext() if adapter is None else aclosing(adapter),
        ):
            url = f"{f'[{host}]' if ':' in host else host}:{port}"
            pki.write_private(layout.kubeconfig, pki.kubeconfig(identity, url))
            await _tell_where_to_upload(server, f"https://{url}", layout.authority.read_text())
            async with Background() as tasks:
                tasks.start(store.run(), name="store")
                tasks.start(_renew(settings, identity, url, tls), name="certificates")
                hypervisors = {name: _hypervisor(settings, name) for name in names}
                agents |= _start(
                    settings,
                    server,
                    hypervisors,
                    network,
                    tasks,
                    uploads=uploads,
                    metrics=metrics,
                    sampler=sampler,
                )
                log.info("ready", url=f"https://{url}", version=__version__, nodes=names)
                summary = await _summary(settings, f"https://{url}", list(hypervisors.values()))
                announce(summary | network.told())
                await ended.wait()
                log.info("stopping")
            await store.close()
    except (ServeError, ApiError) as error:
        raise CannotStart(str(error)) from error
    finally:
        await store.close()


def _adapter(settings: Settings) -> Adapter | None:
    """What serves a Prometheus' metrics, if there is one.  Raises CannotStart."""
    if not settings.prometheus:
        return None
    try:
        return Adapter.load(settings.prometheus, settings.metric_rules)
    except RulesError as error:
        hint = "docs/reference.md says what --metric-rules may hold."
        raise CannotStart(str(error), hint) from error


async def _renew(settings: Settings, identity: pki.Identity, url: str, tls: SSLContext) -> None:
    """Keep the certificates young: a manager may run for longer than they last."""
    layout = settings.layout
    while True:
        await asyncio.sleep(DAY_SECONDS)
        try:
            if pki.renew(layout.pki, api_names(settings), tls):
                pki.write_private(layout.kubeconfig, pki.kubeconfig(identity, url))
                log.info("certificates renewed", kubeconfig=str(layout.kubeconfig))
        except (pki.PkiError, OSError) as error:
            log.warning("certificates not renewed", error=str(error))


def _raise_descriptor_limit() -> None:
    """A machine takes a few descriptors, and the usual soft limit is made for small programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ended() -> asyncio.Event:
    """Set when the process is asked to end."""
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    return ended


async def _make_namespaces(server: ApiServer) -> None:
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    present = {each.metadata.name for each in (await client.list(Namespace)).items if each.metadata}
    for name in NAMESPACES:
        if name not in present:
            try:
                await client.create(Namespace, {"metadata": {"name": name}})
            except AlreadyExists:
                continue


async def _tell_where_to_upload(server: ApiServer, url: str, authority: str) -> None:
    """Clients look for the address of uploads in CDI's configuration."""
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    with suppress(AlreadyExists):
        await client.create(CDIConfig, {"metadata": {"name": cdiconfig.NAME}})
    change = cdiconfig.settled(url, authority)
    await client.patch(CDIConfig, Key("", cdiconfig.NAME), change, subresource="status")


def _start(
    settings: Settings,
    server: ApiServer,
    hypervisors: Mapping[str, Hypervisor],
    network: Networking,
    tasks: Background,
    *,
    uploads: Uploads,
    metrics: Registry,
    sampler: Sampler,
) -> dict[str, Agent]:
    """Start the loops and the nodes; answers the nodes' agents by name."""
    world = World(Client(InProcess(server.handle, STAND_IN)))
    ours = world.acting(Client(InProcess(server.handle, CONTROLLER)))
    controllers = [make(ours) for make in CONTROLLERS] if hypervisors else []
    given = accounts.controller(settings.layout.authority.read_text)
    stand_ins = [*STAND_INS, given, *network.stand_ins()] if hypervisors else []
    controllers += [make(world) for make in stand_ins]
    images = ImageStore(settings.layout.images)
    storage = _storage(settings)
    layout = settings.layout
    limits = None if settings.hollow else Limits(layout.root, known=layout.machines)
    agents: dict[str, Agent] = {}
    if hypervisors:
        theirs = world.acting(Client(InProcess(server.handle, PROVISIONER)))
        controllers.append(provisioner(storage, partial(grow, agents.values()))(theirs))
        filling = Fillings(theirs, storage, images, uploads, needed=not settings.hollow)
        tasks.start(filling.run(), name=filling.name)
    for name, hypervisor in hypervisors.items():
        user = User(name=f"system:node:{name}", groups=("system:nodes", "system:authenticated"))
        mine = world.acting(Client(InProcess(server.handle, user)))
        agents[name] = Agent(
            mine,
            name,
            settings.layout.nodes / name,
            images=images,
            storage=storage,
            hypervisor=hypervisor,
            capacity=_capacity(settings),
            boots_at_once=settings.boots,
            limits=limits,
            host_disks=settings.host_disks,
            network=Echoes() if settings.hollow else network.machines,
            networks=network.pods,
            network_facts=network.facts,
            sampler=sampler,
        )
        tasks.start(agents[name].run(), name=name)
        metrics.add(f"node {name}", agents[name].measures.tell)
    tasks.start(sampler.run(), name="sampler")
    network.start(world, agents, tasks)
    tasks.start(world.run(), name="world")
    for controller in controllers:
        tasks.start(controller.run(), name=controller.name)
    metrics.add("loops", loops.of(lambda: controllers))
    for source, make_source in SOURCES.items() if hypervisors else ():
        metrics.add(source, make_source(ours))
    return agents


def _storage(settings: Settings) -> Storage:
    """The volumes of claims; those of hollow machines are never written, so there is no end."""
    if settings.hollow:
        storage = Storage(settings.layout.storage, space=lambda _: Space(1 << 50, 1 << 50))
    else:
        storage = Storage(settings.layout.storage)
    storage.sweep()
    return storage


def node_names(settings: Settings) -> Sequence[str]:
    """The host's name, with a number behind it where there are several nodes."""
    host = socket.gethostname().lower()
    if not settings.controllers:
        return []
    return [host] if settings.nodes == 1 else [f"{host}-{n}" for n in range(settings.nodes)]


async def _settle_nodes(settings: Settings, server: ApiServer) -> list[str]:
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


async def _settle_ranges(settings: Settings, server: ApiServer) -> None:
    """Where pods have other addresses than last time, nodes are to get others before they ask."""
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    await node_ranges.take_back(client, settings.pod_cidrs)


def _retirement(*, retired: bool) -> Document:
    """The patch that closes a node to new machines, or opens it again."""
    return {
        "metadata": {"annotations": {RETIRED: "true" if retired else None}},
        "spec": {"unschedulable": True if retired else None},
    }


def _capacity(settings: Settings) -> Capacity:
    """What each node has to give: an equal share of the host."""
    if settings.hollow:
        return CAPACITY
    host = measure(settings.directory)
    return Capacity(
        cpu=max(1, host.cpu // settings.nodes),
        memory_bytes=host.memory_bytes // settings.nodes,
        storage_bytes=host.storage_bytes // settings.nodes,
    )


def _hypervisor(settings: Settings, name: str) -> Hypervisor:
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


async def _summary(
    settings: Settings, url: str, hypervisors: Sequence[Hypervisor]
) -> dict[str, str]:
    took = _age_seconds()
    layout = settings.layout
    lines = {
        "headline": f"corral {__version__} is ready after {took:.1f} s",
        "API": url,
        "kubeconfig": str(layout.kubeconfig),
        "data": str(layout.root),
    }
    for hypervisor in hypervisors[:1]:
        lines["machines"] = await _machines(hypervisor)
    return lines


def _age_seconds() -> float:
    """How long this process has been there, its start and its imports included."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


async def _machines(hypervisor: Hypervisor) -> str:
    """What runs machines here, and why."""
    if isinstance(hypervisor, Qemu):
        try:
            await hypervisor.finding()
        except TimeoutError:
            return "QEMU; its accelerator is still being probed, see: corral status"
    facts = hypervisor.facts()
    version = f" {facts['version']}" if facts.get("version") else ""
    return f"{facts['hypervisor']}{version}, {facts['accelerator']}: {facts['reason']}"
