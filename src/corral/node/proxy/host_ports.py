"""Host ports of NodePort and LoadBalancer Services.

A node port is open at the same number on the host's service address, a load balancer at its
Service's own ports, which its status reports.  A port that another program has is reported by an
event, and retried.
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
"""Interval of retries for ports that could not be opened."""
SERVICE_CONTROLLER, KUBE_PROXY = "service-controller", "kube-proxy"
"""Event sources of load balancers and of node ports, as in Kubernetes."""
PORT_UNAVAILABLE = "corral.dev/HostPortUnavailable"
"""Error in the status of a load balancer's port."""

SOURCE_RANGES_UNSUPPORTED = (
    "spec.loadBalancerSourceRanges is not supported, as clients' addresses are not visible here; "
    "without it the port is open to all"
)
"""Message for a load balancer with source ranges: slirp4netns replaces source addresses."""

log = structlog.get_logger()


class PortRequest(NamedTuple):
    """A host port that a Service requests, and its port in the machine namespace."""

    service: Key
    host: HostPort
    target_port: int
    is_load_balancer: bool
    """True if it is a load balancer's own port, not a node port."""
    refusal: str = ""
    """Reason why the port is not opened; empty if it may be."""


class PortForwarder(Protocol):
    """The part of ``ingress.PortForwarder`` that host ports need."""

    async def set(self, ports: Mapping[HostPort, int]) -> Mapping[HostPort, str]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The ports to forward, and the refused requests with their reasons."""

    ports: Mapping[HostPort, int]
    refused: Mapping[PortRequest, str]


def port_requests(
    services: Iterable[Service], host_address: IPv4Address | IPv6Address
) -> list[PortRequest]:
    """Return the ports that Services request at an address of the host, in order of precedence.

    Node ports come before load balancers: they are allocated, and no two are the same; then the
    older Service.
    """
    found = [
        (not request.is_load_balancer, creation_time(service), request)
        for service in services
        for request in _port_requests_of(service, host_address)
    ]
    found.sort(key=lambda each: (not each[0], each[1], each[2].service))
    return [request for _, _, request in found]


def plan(requests: Sequence[PortRequest]) -> Plan:
    """Grant each port to the first request."""
    owners: dict[HostPort, PortRequest] = {}
    refused = {}
    for request in requests:
        if request.refusal:
            refused[request] = request.refusal
            continue
        owner = owners.setdefault(request.host, request)
        if owner is not request:
            refused[request] = f"the Service {owner.service} has it"
    return Plan({host: request.target_port for host, request in owners.items()}, refused)


def status(
    service: Service, host_address: IPv4Address | IPv6Address, refused: Mapping[HostPort, str]
) -> list[Document]:
    """Return ``status.loadBalancer.ingress`` of a Service: the host's address, if it is open."""
    spec = service.spec
    if not is_our_load_balancer(service) or spec is None:
        return []
    ports: list[Document] = []
    for port in spec.ports or ():
        host = _host(port, port.port, host_address)
        error = {"error": PORT_UNAVAILABLE} if host is None or host in refused else {}
        ports.append({"port": port.port, "protocol": port.protocol or "TCP", **error})
    if all("error" in port for port in ports):
        return []
    whole: Document = {"ip": str(host_address), "ipMode": "Proxy"}
    return [whole | {"ports": ports} if any("error" in port for port in ports) else whole]


def is_our_load_balancer(service: Service) -> bool:
    """Report whether a Service is a load balancer without a class, which would name another one."""
    spec = service.spec
    return spec is not None and spec.type == "LoadBalancer" and not spec.loadBalancerClass


def creation_time(service: Service) -> str:
    timestamp = service.metadata.creationTimestamp if service.metadata else None
    return timestamp.isoformat() if timestamp else ""


def _port_requests_of(
    service: Service, host_address: IPv4Address | IPv6Address
) -> Iterable[PortRequest]:
    spec, key = service.spec, key_of(service)
    if spec is None or is_being_deleted(service):
        return
    cluster_ips = [address(text) for text in spec.clusterIPs or [spec.clusterIP or ""]]
    if host_address.version not in {each.version for each in cluster_ips if each is not None}:
        return
    refusal = (
        "" if allows_all_sources(spec.loadBalancerSourceRanges or ()) else SOURCE_RANGES_UNSUPPORTED
    )
    for port in spec.ports or ():
        target_port = host_port(spec, port)
        node_port = _host(port, port.nodePort or 0, host_address)
        if target_port and port.nodePort and node_port:
            yield PortRequest(key, node_port, target_port, is_load_balancer=False)
        own_port = _host(port, port.port, host_address)
        if target_port and own_port and is_our_load_balancer(service):
            yield PortRequest(key, own_port, target_port, is_load_balancer=True, refusal=refusal)


def allows_all_sources(ranges: Sequence[str]) -> bool:
    """Report whether ``spec.loadBalancerSourceRanges`` allows all sources, as an empty list does.

    As with kube-proxy it restricts a load balancer's own ports, not node ports.
    """
    return not ranges or any(each.strip() == "0.0.0.0/0" for each in ranges)


def _host(
    port: ServicePort, number: int, host_address: IPv4Address | IPv6Address
) -> HostPort | None:
    protocol = PROTOCOLS.get(port.protocol or "TCP")
    return HostPort(protocol, host_address, number) if protocol and 0 < number < 1 << 16 else None


class HostPorts:
    """Opens the host ports of Services."""

    def __init__(
        self,
        context: ControllerContext,
        port_forwarder: PortForwarder,
        host_address: IPv4Address | IPv6Address,
        *,
        writes_status: bool = True,
    ) -> None:
        """Open ports at the host's address ``host_address``.

        ``writes_status`` is for one host of a cluster: the status of a load balancer names where
        that one opens it.
        """
        self._client = context.client
        self._port_forwarder = port_forwarder
        self._host_address = host_address
        self._writes_status = writes_status
        self._services = context.informers.of(Service)
        self._recorders = {
            True: context.recorder(SERVICE_CONTROLLER),
            False: context.recorder(KUBE_PROXY),
        }
        self._open: Mapping[HostPort, int] | None = None
        self._reported: dict[PortRequest, str] = {}
        self._sync_needed = asyncio.Event()
        self._services.handle(self._changed)

    async def run(self) -> None:
        """Keep ports open until cancelled; they stay open then."""
        await self._services.synced()
        while True:
            self._sync_needed.clear()
            await wait_at_most(self._sync_needed, RETRY_SECONDS if await self._sync() else None)

    async def _sync(self) -> bool:
        """Open the requested ports and report the results; return whether to retry."""
        requests = port_requests(self._services.items(), self._host_address)
        planned = plan(requests)
        failed_ports: Mapping[HostPort, str] = {}
        if planned.ports != self._open or self._reported:
            failed_ports = await self._port_forwarder.set(planned.ports)
            self._open = planned.ports
        refused = dict(planned.refused)
        refused |= {
            request: failed_ports[request.host]
            for request in requests
            if request.host in failed_ports and request not in planned.refused
        }
        self._record_events(refused)
        services = list(self._services.items()) if self._writes_status else []
        errors = await for_each(services, partial(self._write_status, refused))
        for error in errors:
            log.warning("the status of a load balancer cannot be written", error=str(error))
        return bool(refused or errors)

    def _record_events(self, refused: Mapping[PortRequest, str]) -> None:
        """Record an event for each port that cannot be opened, once for each reason."""
        for request, message in refused.items():
            service = self._services.get(request.service)
            if service is not None and self._reported.get(request) != message:
                text, reason = f"{request.host} cannot be forwarded: {message}", "PortUnavailable"
                if request.is_load_balancer:
                    text = f"Error syncing load balancer: {text}"
                    reason = "SyncLoadBalancerFailed"
                self._recorders[request.is_load_balancer].event(service, "Warning", reason, text)
        self._reported = dict(refused)

    async def _write_status(self, refused: Mapping[PortRequest, str], service: Service) -> None:
        key = key_of(service)
        own_refusals = {
            request.host: message for request, message in refused.items() if request.service == key
        }
        desired = (
            [] if is_being_deleted(service) else status(service, self._host_address, own_refusals)
        )
        observed = _ingress(service)
        if desired == observed or _has_other_class(service):
            return
        change = {
            "metadata": {"resourceVersion": version_of(service)},
            "status": {"loadBalancer": {"ingress": desired or None}},
        }
        try:
            await self._client.patch(Service, key, change, subresource="status")
        except (Conflict, NotFound):
            return  # the change causes another sync
        if desired and not observed:
            recorder, text = self._recorders[True], "Ensured load balancer"
            recorder.event(service, "Normal", "EnsuredLoadBalancer", text)

    def _changed(self, old: Service | None, new: Service | None) -> None:
        if any(each is not None and _is_relevant(each) for each in (old, new)):
            self._sync_needed.set()


def _is_relevant(service: Service) -> bool:
    spec = service.spec
    outside = spec is not None and spec.type in ("NodePort", "LoadBalancer")
    return outside or bool(_ingress(service))


def _has_other_class(service: Service) -> bool:
    """Report whether another implementation serves a load balancer, and writes its status."""
    spec = service.spec
    return spec is not None and spec.type == "LoadBalancer" and bool(spec.loadBalancerClass)


def _ingress(service: Service) -> list[Any]:
    balancer = service.status.loadBalancer if service.status else None
    ports: list[Any] = msgspec.to_builtins(balancer.ingress or []) if balancer else []
    return ports
