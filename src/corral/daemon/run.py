"""One process: the server, the loops, and the nodes, joined and run until it is told to end."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext

import structlog

from corral import __version__, pki, python_gc
from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.kinds.usage import NODE_METRICS, POD_METRICS
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import (
    STAND_INS,
    cdi_config,
    certificates,
    service_account_tokens,
    service_accounts,
    system_config,
)
from corral.config import Layout, Settings
from corral.controllers import SOURCES, controllers as own_controllers
from corral.daemon.bootstrap import begin, tell_where_to_upload
from corral.daemon.component_users import CONTROLLER, PROVISIONER, STAND_IN, node
from corral.daemon.damaged_objects import tell_damaged
from corral.daemon.disk_reserve import Reserve
from corral.daemon.network import Networking, api_names, destinations
from corral.daemon.nodes import (
    capacity,
    deserted,
    hypervisor_of,
    node_names,
    play,
    settle_nodes,
    settle_ranges,
)
from corral.daemon.summary import summary
from corral.metrics import Registry, process
from corral.node.agent.agent import Agent
from corral.node.agent.disk_resize import grow
from corral.node.hollow.streams import Echoes
from corral.node.hypervisor import Hypervisor
from corral.node.images.store import ImageStore
from corral.node.limits.limits import Limits
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.pressure import Pressure, parse_thresholds
from corral.node.pressure.readings import look
from corral.node.storage import Storage
from corral.node.storage.disk_space import Space
from corral.node.storage.population import Fillings, Uploads
from corral.node.storage.provisioner import controller as provisioner
from corral.reconcile import metrics as loops
from corral.reconcile.context import World
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.audit import DEFAULT, Audit, AuditError, Log, Policy, PolicyError, told_lost
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.authn.token_file import TokenFileError, read_tokens
from corral.server.metrics.custom import Adapter, RulesError
from corral.server.transport.listener import ServeError, listening, tls_context
from corral.store import LogError, Store

DAY_SECONDS = 86400
EVENT_SECONDS = 3600
"""How long events are kept, as in Kubernetes."""
RESERVE_SECONDS = 30
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
    reserve = Reserve(layout.reserve)
    adapter, audit, tokens = _adapter(settings), _audit(settings), _tokens(settings)
    identity, store = _opened(settings, reserve)
    agents: dict[str, Agent] = {}
    uploads, sampler, metrics = Uploads(), Sampler(), Registry(process=process)
    server = ApiServer(
        store,
        authenticator=Authenticator({**tokens, identity.token: ADMINISTRATOR}),
        nodes=lambda name: agents[name].asgi if name in agents else None,
        services=network.service_ranges(),
        account_key=identity.account_key,
        uploads=uploads,
        metrics=metrics,
        adapter=adapter,
        audit=audit,
        observed={
            POD_METRICS.resource: sampler.pod_metrics,
            NODE_METRICS.resource: sampler.node_metrics,
        },
    )
    _settle_process()
    ended = _ended()
    try:
        await begin(server)
        names, gone = await settle_nodes(settings, server)
        await settle_ranges(settings, server)
        await network.prepare()
        tls = tls_context(identity.certificate, identity.key, identity.clients)
        app = App(server)
        async with (
            nullcontext() if audit is None else aclosing(audit),
            listening(app, settings.address, settings.port, tls) as (host, port),
            network.listening(app, tls),
            nullcontext() if adapter is None else aclosing(adapter),
            aclosing(server.reviewers),
        ):
            url = f"{f'[{host}]' if ':' in host else host}:{port}"
            pki.write_private(layout.kubeconfig, pki.kubeconfig(identity, url))
            await tell_where_to_upload(server, f"https://{url}", layout.authority.read_text())
            async with Background() as tasks:
                tasks.start(store.run(), name="store")
                tasks.start(_keep(reserve), name="reserve")
                tasks.start(_renew(settings, identity, url, tls), name="certificates")
                hypervisors = {name: hypervisor_of(settings, name) for name in names}
                agents |= _start(
                    settings,
                    server,
                    hypervisors,
                    network,
                    tasks,
                    gone=gone,
                    uploads=uploads,
                    metrics=metrics,
                    sampler=sampler,
                    url=f"https://{url}",
                )
                log.info("ready", url=f"https://{url}", version=__version__, nodes=names)
                announce(
                    await summary(settings, f"https://{url}", [*hypervisors.values()])
                    | network.told()
                )
                await ended.wait()
                log.info("stopping")
            await store.close()
    except (ServeError, ApiError) as error:
        raise CannotStart(str(error)) from error
    finally:
        await store.close()


def _opened(settings: Settings, reserve: Reserve) -> tuple[pki.Identity, Store]:
    """Who is let in, and the objects.  Raises CannotStart."""
    layout, lifetimes = settings.layout, {"events": EVENT_SECONDS}
    try:
        identity = pki.ensure(layout.pki, api_names(settings))
        return identity, Store.open(layout.store, lifetimes=lifetimes, make_room=reserve.give)
    except (pki.PkiError, LogError) as error:
        raise CannotStart(str(error)) from error


def _adapter(settings: Settings) -> Adapter | None:
    """What serves a Prometheus' metrics, if there is one.  Raises CannotStart."""
    if not settings.prometheus:
        return None
    try:
        return Adapter.load(settings.prometheus, settings.metric_rules)
    except RulesError as error:
        hint = "docs/reference.md says what --metric-rules may hold."
        raise CannotStart(str(error), hint) from error


def _tokens(settings: Settings) -> Mapping[str, User]:
    """Further users by their tokens.  Raises CannotStart."""
    if settings.token_file is None:
        return {}
    try:
        return read_tokens(settings.token_file)
    except TokenFileError as error:
        raise CannotStart(
            str(error), "docs/reference.md says what --token-file may hold."
        ) from error


def _audit(settings: Settings) -> Audit | None:
    """What writes down who asks for what, if that is wanted.  Raises CannotStart."""
    if settings.audit_log is None:
        return None
    try:
        policy = Policy.read(settings.audit_policy) if settings.audit_policy else DEFAULT
        file = Log(settings.audit_log, told_lost)
        return Audit(policy, file, components=settings.audit_policy is not None)
    except (PolicyError, AuditError) as error:
        hint = "docs/guide/users.md (Who did what) says what --audit-log and --audit-policy need."
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


async def _keep(reserve: Reserve) -> None:
    """Make the reserve whole, and again some time after it was given up."""
    while True:
        await asyncio.to_thread(reserve.fill)
        await asyncio.sleep(RESERVE_SECONDS)


def _settle_process() -> None:
    os.umask(0o077)  # logs, disks and sockets are nobody else's, wherever the directory lies
    _raise_descriptor_limit()
    python_gc.spare_what_stays()


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


def _authorities(layout: Layout) -> tuple[str, str]:
    """Who certifies users, and who certifies what forwards requests in their names."""
    return layout.clients.read_text(), pki.front_proxy_authority(layout.pki)


def _start(
    settings: Settings,
    server: ApiServer,
    hypervisors: Mapping[str, Hypervisor],
    network: Networking,
    tasks: Background,
    *,
    gone: dict[str, str],
    uploads: Uploads,
    metrics: Registry,
    sampler: Sampler,
    url: str,
) -> dict[str, Agent]:
    """Start the loops and the nodes; answers the nodes' agents by name."""
    world = World(Client(InProcess(server.handle, STAND_IN)))
    ours = world.acting(Client(InProcess(server.handle, CONTROLLER)))
    controllers = own_controllers(ours, cpu_ratio=settings.cpu_ratio) if hypervisors else []
    authority = settings.layout.authority.read_text
    own = (
        service_accounts.controller(authority),
        certificates.signer(partial(pki.sign_request, settings.layout.pki)),
        service_account_tokens.controller(authority),
        system_config.controller(partial(_authorities, settings.layout)),
        cdi_config.controller(url, authority()),
        *network.stand_ins(),
    )
    stand_ins = [*STAND_INS, *own] if hypervisors else []
    controllers += [make(world) for make in stand_ins]
    reached = destinations(settings)
    images = ImageStore(settings.layout.images, destinations=reached, option=settings.layout.option)
    tasks.start(images.watch(), name="images")
    storage = _storage(settings)
    layout = settings.layout
    pressure = Pressure(
        parse_thresholds(settings.eviction_hard),
        partial(look, layout.root, layout.images),
        images,
        transition_seconds=settings.pressure_seconds,
    )
    pressure.begin()
    limits = None if settings.hollow else Limits(layout.root, known=layout.machines)
    agents: dict[str, Agent] = {}
    if hypervisors:
        theirs = world.acting(Client(InProcess(server.handle, PROVISIONER)))
        controllers.append(provisioner(storage, partial(grow, agents.values()))(theirs))
        filling = Fillings(
            theirs,
            storage,
            images,
            uploads,
            needed=not settings.hollow,
            destinations=reached,
        )
        tasks.start(filling.run(), name=filling.name)
    removal = deserted(server, gone)
    tasks.start(removal.run(), name=removal.name)
    for name, hypervisor in hypervisors.items():
        user = node(name)
        mine = world.acting(Client(InProcess(server.handle, user)))
        agents[name] = Agent(
            mine,
            name,
            settings.layout.nodes / name,
            images=images,
            storage=storage,
            hypervisor=hypervisor,
            capacity=capacity(settings),
            boots_at_once=settings.boots,
            limits=limits,
            host_disks=settings.host_disks,
            network=Echoes() if settings.hollow else network.machines,
            networks=network.pods,
            destinations=reached,
            network_facts=network.facts,
            sampler=sampler,
            pressure=pressure,
            retired=name not in node_names(settings),
        )
        tasks.start(play(agents[name], server, gone, removal), name=name)
        metrics.add(f"node {name}", agents[name].measures.tell)
    tasks.start(sampler.run(), name="sampler")
    tasks.start(pressure.run(), name="pressure")
    network.start(world, agents, tasks)
    tell_damaged(server, world)
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
