"""Composes the machine network: namespace, DNS, Service proxy, NetworkPolicies, overlay."""

import base64
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from socket import socket
from ssl import SSLContext
from typing import TYPE_CHECKING, Self

import structlog
from starlette.types import ASGIApp

from corral.aio import Background
from corral.api.addresses import parse_address
from corral.config import CNI, HOST_GW, NONE, VXLAN, WIREGUARD, Settings
from corral.node.agent.agent import Agent
from corral.node.dns.server import Dns
from corral.node.hollow.hypervisor import HollowNetworks
from corral.node.host.destinations import Destinations
from corral.node.network.cni import networks as cni
from corral.node.network.cni.networks import CniNetworks, CniSettings
from corral.node.network.connections import HostConnections
from corral.node.network.host_gateway import HostGateway
from corral.node.network.machine_network import USER_NETWORK, MachineNetwork, families
from corral.node.network.namespace_nft_rules import API_PORT, HOST_RANGES, LINK_RANGES
from corral.node.network.netlink import Address, NetworkError
from corral.node.network.overlay import Backend, Overlay
from corral.node.network.pod_layout import PodNetworkSettings
from corral.node.network.pod_network import PodNetworks
from corral.node.network.resolver import read_host_resolver
from corral.node.network.vxlan import Vxlan
from corral.node.network.wireguard import Wireguard, require_support
from corral.node.network_policy.network_policy_controller import NetworkPolicyController
from corral.node.proxy.host_ports import HostPorts
from corral.node.proxy.proxy import Proxy
from corral.node.state import machine_record as records
from corral.node.status.node_status import host_address
from corral.pki import public_key_hash, wireguard_key, wireguard_public_key
from corral.reconcile.context import ControllerContext
from corral.server.transport.listener import ServeError, listening_on

if TYPE_CHECKING:  # a joined node has no API server, and does not import one
    from corral.node.network.guest_ports import Network
    from corral.server.admission.service_allocation import ServiceRanges

API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""Short names of the API server inside guests."""
DOMAIN = "cluster.local"
DNS_HOST = 10
"""The name server's Service has the tenth address of its range, as kubeadm gives it."""

log = structlog.get_logger()


def api_names(settings: Settings) -> list[str]:
    """Return the names and addresses in the API server's certificate."""
    services = [str(each[1]) for each in settings.service_cidrs]
    return [settings.address, *API_NAMES, f"{API_NAMES[-1]}.{DOMAIN}", *services]


def destinations(settings: Settings) -> Destinations:
    """Return the destinations that tenants' URLs may reach from this host."""
    return Destinations(
        cluster=(*settings.pod_cidrs, *settings.service_cidrs, *LINK_RANGES),
        allowed=settings.allowed_destinations,
    )


def vni_of(authority: str) -> int:
    """Return the number of a cluster's VXLAN: all of its hosts find the same, by its authority."""
    return int(public_key_hash(authority).removeprefix("sha256:")[:6], 16)


def between_hosts(backend: str) -> str:
    """Return how traffic travels between hosts, for ``corral status``."""
    way = "your routes" if backend == NONE else backend
    return f"between hosts by {way}, {'encrypted' if backend == WIREGUARD else 'not encrypted'}"


def _is_enabled(settings: Settings) -> bool:
    """Report whether machines of this process are on a network."""
    return settings.controllers and settings.network and not settings.hollow


class Networking:
    """The machine network, if enabled, and its DNS, proxy, policies and overlay.

    ``machines`` is the network after ``prepare``, ``pods`` attaches pods to it, ``connections``
    reach them; all are None without a network.  With the backend ``cni`` there is no ``machines``:
    Services, policies and DNS are the cluster's.
    """

    def __init__(self, settings: Settings, desired: MachineNetwork | None) -> None:
        self.machines: MachineNetwork | None = None
        self.pods: PodNetworks | CniNetworks | HollowNetworks | None = (
            HollowNetworks() if settings.hollow else None
        )
        self.connections: Network | None = None
        self._settings = settings
        self._desired = desired
        self._unusable: NetworkError | None = None
        """The error because of which pods cannot be on the network of CNI, if there is one."""
        self._key: bytes | None = None
        """This host's private key for WireGuard, if that is to be used."""
        self._served: list[Dns | NetworkPolicyController | Proxy | Overlay] = []

    @classmethod
    def join(cls, settings: Settings) -> Self:
        """Return the desired network, not yet prepared.

        Without root, the process joins the machine namespace here: call it before any thread
        starts.
        """
        if not _is_enabled(settings) or settings.network_backend == CNI:
            return cls(settings, None)
        layout = settings.layout
        desired = MachineNetwork(
            layout.network,
            pod_cidrs=settings.pod_cidrs,
            service_cidrs=settings.service_cidrs,
            allowed=settings.allowed_destinations,
            has_foreign_routes=settings.network_backend == NONE,
        )
        desired.join(
            machine
            for node in layout.node_directories()
            for machine, _ in records.scan(node / records.MACHINES)
        )
        return cls(settings, desired)

    def require_encryption(self) -> None:
        """Raise NetworkError if WireGuard is to be used, and this host has none."""
        if self._desired is not None and self._settings.network_backend == WIREGUARD:
            require_support()

    async def prepare(self) -> None:
        """Create or adopt the network; on failure, ``facts`` has the reason."""
        if self.uses_cni:
            await self._prepare_cni()
        if self._desired is None:
            return
        try:
            settings = self._settings
            await self._leave_cni()
            await self._desired.prepare()
            if settings.network_backend == WIREGUARD and os.geteuid() == 0:
                self._key = wireguard_key(settings.layout.wireguard_key)
            self.pods = self._pods(self._desired)
        except NetworkError as error:
            self._desired.mark_unusable(error)
            log.warning("no network for machines", reason=error.message, hint=error.hint)
        else:
            self.machines = self.connections = self._desired

    @property
    def moves_addresses(self) -> bool:
        """True if machines may move to and from other hosts with their addresses."""
        follows = (
            self._settings.network_backend in {VXLAN, WIREGUARD, HOST_GW} and os.geteuid() == 0
        )
        return isinstance(self.pods, HollowNetworks) or (self.machines is not None and follows)

    @property
    def uses_cni(self) -> bool:
        return _is_enabled(self._settings) and self._settings.network_backend == CNI

    async def _prepare_cni(self) -> None:
        settings = self._settings
        networks = CniNetworks(
            settings.layout.network,
            CniSettings(
                configurations=settings.cni_conf_dir,
                plugins=settings.cni_bin_dirs,
                dns=(settings.cluster_dns,) if settings.cluster_dns is not None else (),
                domain=DOMAIN,
                host=read_host_resolver(),
            ),
        )
        try:
            await networks.prepare(self._living())
        except NetworkError as error:
            self._unusable = error
            log.warning("no network for machines", reason=error.message, hint=error.hint)
        else:
            self.pods, self.connections = networks, HostConnections()

    async def _leave_cni(self) -> None:
        """Release what another start has left of CNI.  Raises NetworkError while machines run."""
        directory = self._settings.layout.network
        if not cni.was_used(directory):  # most hosts: no machine's record is read for this
            return
        cni.require_unused(directory, self._living())
        try:
            await cni.remove(directory)
        except NetworkError as error:
            log.warning("CNI", reason=error.message, hint=error.hint)

    def _living(self) -> set[str]:
        """Return the uids of the machines that have not ended."""
        return {
            record.id
            for node in self._settings.layout.node_directories()
            for _, record in records.unfinished(node)
        }

    def _pods(self, machines: MachineNetwork) -> PodNetworks:
        pod_settings = PodNetworkSettings(
            gateways=machines.gateways,
            ranges=machines.pod_cidrs,
            # The name server's Service is of the first family, as kubeadm's; by the second one the
            # server is found where it is.
            dns=(self._settings.cluster_dns,)
            if self._settings.cluster_dns is not None
            else (machines.service_cidrs[0][DNS_HOST], *machines.gateways[1:]),
            domain=DOMAIN,
            host=read_host_resolver(),
        )
        return PodNetworks(machines.namespace, pod_settings)

    def service_ranges(self) -> "ServiceRanges":
        """Return the ClusterIP ranges, one for each IP version that machines have.

        Pod addresses are reserved whether or not there is a network here.
        """
        from corral.server.admission.service_allocation import ServiceRanges  # noqa: PLC0415

        settings = self._settings
        cidrs = settings.service_cidrs
        served = (
            cidrs[:1]
            if self._desired is None
            else tuple(each for each in cidrs if each.version in families())
        )
        return ServiceRanges(
            networks=served,
            pods=(*settings.pod_cidrs, *LINK_RANGES),
            routed_pods=() if self.uses_cni else settings.pod_cidrs,
            name_servers=frozenset(filter(None, map(parse_address, read_host_resolver().servers))),
            kept_ports=settings.kept_ports,
        )

    def facts(self) -> Mapping[str, str]:
        """Return the annotations of Nodes about the network."""
        if self._unusable is not None:
            return {"network": USER_NETWORK, "reason": self._unusable.full_message}
        if isinstance(self.pods, CniNetworks):
            return self.pods.facts()
        if self._desired is None:
            return {}
        facts = self._desired.facts()
        if any(isinstance(each, Overlay) and each.has_peers for each in self._served):
            backend = self._settings.network_backend
            facts = {**facts, "network": f"{facts['network']}; {between_hosts(backend)}"}
        if self._key is not None:
            public_key = wireguard_public_key(self._key)
            facts = {
                **facts,
                "wireguard": base64.b64encode(public_key).decode(),
                "wireguard-port": str(self._settings.wireguard_port),
            }
        problems = [problem for each in self._served for problem in each.problems()]
        problems += [each for each in self._missing_encryption() if each not in problems]
        return {**facts, "reason": "; ".join(filter(None, (facts["reason"], *problems)))}

    def _missing_encryption(self) -> Iterator[str]:
        """Return why this host cannot encrypt, also before it knows of another host."""
        try:
            self.require_encryption()
        except NetworkError as error:
            yield error.full_message

    def summary(self) -> dict[str, str]:
        """Return the network's lines of the startup summary."""
        facts = self.facts()
        wrong = {"wrong": f"network: {facts['reason']}"} if facts.get("reason") else {}
        return {"network": facts["network"], **wrong} if facts else {}

    @asynccontextmanager
    async def listening(self, app: ASGIApp, tls: SSLContext) -> AsyncGenerator[None, None]:
        """Serve the API in the machine namespace too, where the Service ``kubernetes`` leads."""
        async with AsyncExitStack() as stack:
            for bound in await self.api_sockets():
                await stack.enter_async_context(listening_on(app, bound, tls))
            yield

    async def api_sockets(self) -> list[socket]:
        """Return sockets in the machine namespace, bound where the Service ``kubernetes`` leads.

        Raises ServeError.
        """
        sockets: list[socket] = []
        if (machines := self.machines) is None:
            return sockets
        for gateway in machines.gateways:
            try:
                sockets.append(await machines.bound(gateway, API_PORT))
            except OSError as error:
                where = f"{gateway} port {API_PORT}"
                raise ServeError(f"no listening for machines at {where}: {error}") from error
        return sockets

    def start(
        self, context: ControllerContext, agents: Mapping[str, Agent], tasks: Background
    ) -> None:
        """Start the repair of the network and its DNS, proxy, policies and overlay."""

        def notify_agents() -> None:
            for agent in agents.values():
                agent.register_again()

        if isinstance(self.pods, CniNetworks):
            self.pods.on_change = notify_agents
            tasks.start(self.pods.run(), name="pod networks")
        if self.machines is None:
            return
        self.machines.on_change = notify_agents
        tasks.start(self.machines.run(), name="network")
        if isinstance(self.pods, PodNetworks):
            tasks.start(self.pods.run(), name="pod networks")
        servers = [str(each[DNS_HOST]) for each in self.machines.service_cidrs]
        dns = Dns(
            context,
            self.machines,
            domain=DOMAIN,
            addresses=servers[:1],
            clients=HOST_RANGES,
            on_change=notify_agents,
        )
        policies = NetworkPolicyController(context, self.machines, on_change=notify_agents)
        node_addresses = [ip_address(self._settings.node_address or host_address())]
        proxy = Proxy(
            context, self.machines, nodes=agents, addresses=node_addresses, on_change=notify_agents
        )
        parts: list[tuple[str, Dns | NetworkPolicyController | Proxy | Overlay]] = [
            *([("dns", dns)] if self._settings.cluster_dns is None else []),
            ("policies", policies),
            ("proxy", proxy),
        ]
        if os.geteuid() == 0 and isinstance(self.pods, PodNetworks):
            overlay = self.pods.other_hosts = Overlay(
                context,
                self._backend(self.machines, node_addresses[0]),
                address=node_addresses[0],
                pod_cidrs=self.machines.pod_cidrs,
                lock=self.pods.routing,
                on_change=notify_agents,
            )
            parts.append(("overlay", overlay))
        self._served = [each for _, each in parts]
        for name, each in parts:
            tasks.start(each.run(), name=name)
            self.machines.on_loss(each.resync)
        ports = HostPorts(
            context,
            self.machines.port_forwarder,
            self._settings.service_address,
            writes_status=not self._settings.layout.membership.exists(),
        )
        tasks.start(ports.run(), name="host ports")

    def _backend(self, machines: MachineNetwork, address: Address) -> Backend:
        """Return what leads to the machines of other hosts."""
        if self._settings.network_backend == VXLAN:
            return Vxlan(
                self._settings.layout.network,
                machines.namespace,
                address=address,
                vni=vni_of(self._settings.layout.authority.read_text()),
                pod_cidrs=machines.pod_cidrs,
            )
        if self._key is not None:
            return Wireguard(
                self._settings.layout.network,
                machines.namespace,
                address=address,
                pod_cidrs=machines.pod_cidrs,
                key=self._key,
                public_key=wireguard_public_key(self._key),
                port=self._settings.wireguard_port,
            )
        return HostGateway(
            self._settings.layout.network,
            machines.namespace,
            address=address,
            pod_cidrs=machines.pod_cidrs,
            routes_peers=self._settings.network_backend == HOST_GW,
        )
