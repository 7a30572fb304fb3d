"""A node alone: its agent, which asks the API server of another host.

What ``run`` does for a manager, ``NodeProcess.run`` does for a host that has joined a cluster: the
same parts of a node, composed around a client that speaks HTTPS.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from ssl import SSLContext
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.types import ASGIApp

from corral.aio import Background
from corral.api.addresses import Network
from corral.api.errors import ApiError, Unavailable
from corral.api.kinds.auth.certificate_signing_request import NODE_USER_PREFIX
from corral.client.client import Client
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig
from corral.client.retries import Retrying
from corral.config import Layout, Settings
from corral.daemon import process
from corral.daemon.errors import CannotStart
from corral.daemon.host import Host
from corral.daemon.membership import Credentials, Membership, config_of, join, refresh
from corral.daemon.network import Networking
from corral.metrics import Registry, process as process_metrics
from corral.node.agent.agent import Agent
from corral.node.agent.node_informers import NodeInformers
from corral.node.images.peer import Peer
from corral.node.kubelet.authorization import KubeletAuthorization
from corral.node.network.api_relay import relay
from corral.node.status.node_status import Registration
from corral.reconcile import metrics as controller_metrics
from corral.reconcile.context import ControllerContext
from corral.server.flowcontrol.memory_trim import return_memory
from corral.server.transport.listener import ListenOptions, ServeError, listening, tls_context

KUBELET_PORT: Final = 10250
RENEW_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 60.0
"""Time between two attempts to have a serving certificate signed."""
_OPTIONS: Final = ListenOptions(address="--address", port="--port")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """One joined node: what it is opened from.

    config, credentials: those that joining has left, unless given.
    provisioner: a user who writes claims and volumes in place of the node.
    """

    settings: Settings
    membership: Membership
    networking: Networking
    registration: Registration
    config: Kubeconfig | None = None
    credentials: Credentials | None = None
    provisioner: Kubeconfig | None = None

    @property
    def _credentials(self) -> Credentials:
        return self.credentials or Credentials(self.settings.layout, self.membership.name)

    async def run(self, announce: Callable[[dict[str, str]], None]) -> None:
        """Run the agent until SIGTERM or SIGINT; machines run on afterwards.

        ``announce`` is called once the node is registered and its API is served.  Raises
        CannotStart.
        """
        process.prepare()
        process.free_large_blocks()
        terminated = process.termination()
        host = Host(self.settings, self.networking)
        try:
            host.mount(is_first=False)
            config = self.config or config_of(self.settings.layout, self.membership.server)
            async with (
                Https(config) as transport,
                Https(self.provisioner or config) as provisioner,
                Background() as tasks,
            ):
                client = Client(Retrying(transport))
                await self.networking.prepare()
                informers = NodeInformers(client, self.membership.name)
                context = ControllerContext(client, informers=informers, clock=transport.clock.now)
                provisioning = context
                if self.provisioner is not None:
                    provisioning = context.with_client(Client(Retrying(provisioner)))
                agent = self._start(host, context, provisioning, transport, tasks)
                app = host.node_app(agent.name)
                async with self._serving(app, agent, client), self._api_in_namespace():
                    tasks.start(self._renew(client, transport), name="certificates")
                    log.info("ready", node=agent.name, server=self.membership.server)
                    announce(self._summary())
                    return_memory()  # some MiB of the start
                    await terminated.wait()
                    log.info("stopping")
                    await agent.stop()
        except (ServeError, ApiError) as error:
            raise CannotStart(str(error)) from error
        except ExceptionGroup as group:  # of the tasks that were running already
            expected, others = group.split((ServeError, ApiError, CannotStart))
            if expected is None or others is not None:
                raise
            raise CannotStart(str(_first(expected))) from group

    def _start(
        self,
        host: Host,
        context: ControllerContext,
        provisioning: ControllerContext,
        transport: Https,
        tasks: Background,
    ) -> Agent:
        """Start the parts of the node."""
        metrics = Registry(process=process_metrics)
        running = host.start_joined(
            self.membership.name,
            self.registration,
            context=context,
            provisioner_context=provisioning,
            first=Peer(transport.download, user=f"{NODE_USER_PREFIX}{self.membership.name}"),
            server=self.membership.server,
            reach=self._reach,
            clock=transport.clock,
            tasks=tasks,
            metrics=metrics,
        )
        self.networking.start(context, host.agents, tasks)
        tasks.start(context.run(), name="context")
        for controller in running:
            tasks.start(controller.run(), name=controller.name)
        metrics.add("loops", controller_metrics.of(lambda: running))
        return host.agents[self.membership.name]

    def _reach(self, url: str) -> Kubeconfig:
        """Return the configuration of a client of another node, with our certificate alone.

        The other node's Node names the URL, so a token would go to any writer of that Node.  Raises
        Unavailable without a certificate.
        """
        try:
            own = self.config or config_of(self.settings.layout, self.membership.server)
        except CannotStart as error:
            raise Unavailable(error.message) from error
        if not own.certificate:
            raise Unavailable("this node has no client certificate to show to other nodes")
        return replace(
            own,
            server=url,
            token="",
            token_file=None,
            impersonated="",
            impersonated_group="",
            insecure=False,
        )

    @asynccontextmanager
    async def _serving(
        self, node_app: ASGIApp, agent: Agent, client: Client
    ) -> AsyncGenerator[None, None]:
        """Serve the node's own API, under a certificate for the address that its Node names."""
        address, port = self.registration.address, self.registration.kubelet_port
        hosts = [address, agent.name]
        found = self._credentials.served(hosts) or self._credentials.provisional(hosts)
        if found is None:
            await agent.registered()  # the approver reads the addresses from the Node
            found = await self._credentials.serving(client, hosts)
        tls = tls_context(*found, self._credentials.clients)
        app = KubeletAuthorization(node_app, client, agent.name)
        listener = listening(app, address, port, tls, options=_OPTIONS)
        async with listener, Background() as tasks:
            renewing = self._renew_serving(agent, client, hosts, tls)
            tasks.start(renewing, name="serving certificate")
            yield

    async def _renew_serving(
        self, agent: Agent, client: Client, hosts: Sequence[str], tls: SSLContext
    ) -> None:
        """Have the serving certificate signed where it is not, and renewed in time."""
        await agent.registered()
        while True:
            delay = RENEW_SECONDS
            if self._credentials.served(hosts) is None:
                try:
                    tls.load_cert_chain(*await self._credentials.serving(client, hosts))
                    log.info("serving certificate signed")
                except (ApiError, CannotStart, OSError) as error:
                    log.warning("serving certificate not signed", error=str(error))
                    delay = RETRY_SECONDS
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def _api_in_namespace(self) -> AsyncGenerator[None, None]:
        """Lead machines that ask for the Service ``kubernetes`` to the cluster's API server."""
        server = urlsplit(self.membership.server)
        async with AsyncExitStack() as stack:
            for bound in await self.networking.api_sockets():
                there = (server.hostname or "", server.port or 443)
                await stack.enter_async_context(relay(bound, *there))
            yield

    async def _renew(self, client: Client, transport: Https) -> None:
        """Renew the client certificate in time, and follow the authorities of clients."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._credentials.authorities(client)
                if await self._credentials.renew(client, transport.tls):
                    log.info("client certificate renewed")
            except (ApiError, CannotStart, OSError) as error:
                log.warning("certificates not renewed", error=str(error))

    def _summary(self) -> dict[str, str]:
        address, port = self.registration.address, self.registration.kubelet_port
        return {
            "headline": f"node {self.membership.name} has joined {self.membership.server}",
            "kubelet": f"https://{address}:{port}",
            "data": str(self.settings.directory),
            **self.networking.summary(),
        }


async def enter(
    layout: Layout, name: str, *, server: str | None, token: str | None, ca_hash: str | None
) -> Membership:
    """Join a cluster, or go on as the member that this host is.  Raises CannotStart.

    A member starts without its API server, too: its machines are taken over, and it registers
    when the server is back.
    """
    member = Membership.load(layout)
    if member is not None and server in (None, member.server):
        try:
            return await refresh(layout, member.server, member.name)
        except Unavailable as error:
            log.warning("the API server is away", error=error.message)
            return member
        except ApiError as error:
            raise CannotStart(
                f"{member.server} refuses node {member.name}: {error.message}",
                "If its Node was deleted there, corral leave here, and join again with a token.",
            ) from error
    if member is not None:
        raise CannotStart(
            f"this host is node {member.name} of {member.server}",
            "corral leave ends that; --data-dir chooses another place.",
        )
    if not server or not token or not ca_hash:
        raise CannotStart(
            "this host has not joined a cluster yet: the server's URL, --token and --ca-hash are "
            "needed",
            "corral token create --print-join-command on the first host prints them.",
        )
    return await join(layout, server, name, token=token, ca_hash=ca_hash)


def settings_in(settings: Settings, membership: Membership) -> Settings:
    """Return the settings of a node with the ranges of its cluster."""
    network = membership.network
    return replace(
        settings,
        node_name=membership.name,
        pod_cidrs=_networks(network.pod_cidrs),
        service_cidrs=_networks(network.service_cidrs),
        network=settings.network and bool(network.backend),
        network_backend=network.backend,
    )


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ip_network(each) for each in text.split(",") if each)


def address_towards(server: str) -> str:
    """Return this host's address on the way to a server; the loopback's where there is no way."""
    parts = urlsplit(server)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group that is no group itself."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
