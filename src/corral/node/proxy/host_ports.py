"""Opens Services of type NodePort and LoadBalancer to the host.

A node port is open at the same number on the host's service address, a load balancer at its
Service's own ports; its status tells so.  A port that somebody else has is told of in an event, and
asked for again.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog
from lightkube.models.core_v1 import Service, ServicePort

from corral.aio import wait_at_most
from corral.api.errors import Conflict, NotFound
from corral.api.object import Document, Key
from corral.node.network.ingress import HostPort
from corral.node.proxy.backends import PROTOCOLS, address
from corral.node.proxy.service_rules import host_port
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import is_being_deleted, key_of, version_of

RETRY_SECONDS = 10.0
"""What could not be had is asked for again after this long."""
BALANCER, PROXY = "service-controller", "kube-proxy"
"""Who tells of load balancers, and who of node ports, in Kubernetes."""
UNAVAILABLE = "corral.dev/HostPortUnavailable"
"""In the status of a load balancer's port: what is wrong with it."""

BLIND = (
    "spec.loadBalancerSourceRanges cannot be kept, as callers' addresses are not seen here; "
    "without it the port is open to all"
)
"""Why a load balancer that is for some callers only is closed: slirp4netns calls for everybody."""

log = structlog.get_logger()


class Wish(NamedTuple):
    """A port of the host that a Service wants, and the port inside that it leads to."""

    service: Key
    host: HostPort
    inner: int
    balanced: bool
    """Whether it is a load balancer's own port; else it is a node port."""
    barred: str = ""
    """Why nobody may have it, whoever else wants it."""


class Inbound(Protocol):
    """The way in from the host."""

    async def set(self, ports: Mapping[HostPort, int]) -> Mapping[HostPort, str]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Which port goes to whom, and which wishes cannot be met, with why."""

    ports: Mapping[HostPort, int]
    refused: Mapping[Wish, str]


def wishes(services: Iterable[Service], at: IPv4Address | IPv6Address) -> list[Wish]:
    """The ports that Services want at an address of the host, first come first.

    Node ports come before load balancers: nobody chose them, and no two are the same.
    """
    found = [
        (not wish.balanced, created(service), wish)
        for service in services
        for wish in _wishes_of(service, at)
    ]
    found.sort(key=lambda one: (not one[0], one[1], one[2].service))
    return [wish for _, _, wish in found]


def plan(wanted: Sequence[Wish]) -> Plan:
    """Give each port to the first who wants it."""
    owners: dict[HostPort, Wish] = {}
    refused = {}
    for wish in wanted:
        if wish.barred:
            refused[wish] = wish.barred
            continue
        owner = owners.setdefault(wish.host, wish)
        if owner is not wish:
            refused[wish] = f"the Service {owner.service} has it"
    return Plan({host: wish.inner for host, wish in owners.items()}, refused)


def status(
    service: Service, at: IPv4Address | IPv6Address, refused: Mapping[HostPort, str]
) -> list[Document]:
    """``status.loadBalancer.ingress`` of a Service: where it is reached, if anywhere."""
    spec = service.spec
    if not is_balanced(service) or spec is None:
        return []
    told: list[Document] = []
    for port in spec.ports or ():
        host = _host(port, port.port, at)
        error = {"error": UNAVAILABLE} if host is None or host in refused else {}
        told.append({"port": port.port, "protocol": port.protocol or "TCP", **error})
    if all("error" in port for port in told):
        return []
    whole: Document = {"ip": str(at), "ipMode": "Proxy"}
    return [whole | {"ports": told} if any("error" in port for port in told) else whole]


def is_balanced(service: Service) -> bool:
    """Whether a Service is a load balancer of ours; a class would name somebody else's."""
    spec = service.spec
    return spec is not None and spec.type == "LoadBalancer" and not spec.loadBalancerClass


def created(service: Service) -> str:
    moment = service.metadata.creationTimestamp if service.metadata else None
    return moment.isoformat() if moment else ""


def _wishes_of(service: Service, at: IPv4Address | IPv6Address) -> Iterable[Wish]:
    spec, key = service.spec, key_of(service)
    if spec is None or is_being_deleted(service):
        return
    own = [address(text) for text in spec.clusterIPs or [spec.clusterIP or ""]]
    if at.version not in {each.version for each in own if each is not None}:
        return
    barred = "" if is_for_all(spec.loadBalancerSourceRanges or ()) else BLIND
    for port in spec.ports or ():
        inner = host_port(spec, port)
        node_port = _host(port, port.nodePort or 0, at)
        if inner and port.nodePort and node_port:
            yield Wish(key, node_port, inner, balanced=False)
        balanced = _host(port, port.port, at)
        if inner and balanced and is_balanced(service):
            yield Wish(key, balanced, inner, balanced=True, barred=barred)


def is_for_all(ranges: Sequence[str]) -> bool:
    """Whether ``spec.loadBalancerSourceRanges`` lets everybody in, as it does where it is empty.

    As with kube-proxy it is about a load balancer's own ports, not about node ports.
    """
    return not ranges or any(each.strip() == "0.0.0.0/0" for each in ranges)


def _host(port: ServicePort, number: int, at: IPv4Address | IPv6Address) -> HostPort | None:
    protocol = PROTOCOLS.get(port.protocol or "TCP")
    return HostPort(protocol, at, number) if protocol and 0 < number < 1 << 16 else None


class HostPorts:
    """The Services that are open to the host."""

    def __init__(
        self, context: ControllerContext, inbound: Inbound, at: IPv4Address | IPv6Address
    ) -> None:
        """``at`` is the host's address where they are open."""
        self._client = context.client
        self._inbound = inbound
        self._at = at
        self._services = context.informers.of(Service)
        self._voices = {True: context.recorder(BALANCER), False: context.recorder(PROXY)}
        self._open: Mapping[HostPort, int] | None = None
        self._told: dict[Wish, str] = {}
        self._woken = asyncio.Event()
        self._services.handle(self._changed)

    async def run(self) -> None:
        """Keep ports open until cancelled; they stay open then."""
        await self._services.synced()
        while True:
            self._woken.clear()
            await wait_at_most(self._woken, RETRY_SECONDS if await self._settle() else None)

    async def _settle(self) -> bool:
        """Open what is wanted and tell what came of it; answers whether to try again."""
        wanted = wishes(self._services.items(), self._at)
        planned = plan(wanted)
        denied: Mapping[HostPort, str] = {}
        if planned.ports != self._open or self._told:
            denied = await self._inbound.set(planned.ports)
            self._open = planned.ports
        refused = dict(planned.refused)
        refused |= {
            wish: denied[wish.host]
            for wish in wanted
            if wish.host in denied and wish not in planned.refused
        }
        self._tell(refused)
        failed = await for_each(list(self._services.items()), partial(self._write_status, refused))
        for error in failed:
            log.warning("load balancer not told", error=str(error))
        return bool(refused or failed)

    def _tell(self, refused: Mapping[Wish, str]) -> None:
        """An event for each port that cannot be had, and one when it can."""
        for wish, why in refused.items():
            service = self._services.get(wish.service)
            if service is not None and self._told.get(wish) != why:
                text, reason = f"{wish.host} cannot be had: {why}", "PortUnavailable"
                if wish.balanced:
                    text = f"Error syncing load balancer: {text}"
                    reason = "SyncLoadBalancerFailed"
                self._voices[wish.balanced].event(service, "Warning", reason, text)
        self._told = dict(refused)

    async def _write_status(self, refused: Mapping[Wish, str], service: Service) -> None:
        key = key_of(service)
        mine = {wish.host: why for wish, why in refused.items() if wish.service == key}
        wanted = [] if is_being_deleted(service) else status(service, self._at, mine)
        present = _ingress(service)
        if wanted == present or _is_anothers(service):
            return
        change = {
            "metadata": {"resourceVersion": version_of(service)},
            "status": {"loadBalancer": {"ingress": wanted or None}},
        }
        try:
            await self._client.patch(Service, key, change, subresource="status")
        except (Conflict, NotFound):
            return  # its change is on its way, and comes here
        if wanted and not present:
            voice, text = self._voices[True], "Ensured load balancer"
            voice.event(service, "Normal", "EnsuredLoadBalancer", text)

    def _changed(self, old: Service | None, new: Service | None) -> None:
        if any(one is not None and _concerns(one) for one in (old, new)):
            self._woken.set()


def _concerns(service: Service) -> bool:
    spec = service.spec
    outside = spec is not None and spec.type in ("NodePort", "LoadBalancer")
    return outside or bool(_ingress(service))


def _is_anothers(service: Service) -> bool:
    """A load balancer of another class: whoever serves it tells where it is."""
    spec = service.spec
    return spec is not None and spec.type == "LoadBalancer" and bool(spec.loadBalancerClass)


def _ingress(service: Service) -> list[Any]:
    balancer = service.status.loadBalancer if service.status else None
    told: list[Any] = msgspec.to_builtins(balancer.ingress or []) if balancer else []
    return told
