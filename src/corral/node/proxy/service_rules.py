"""The nftables rules of one Service: its chains, its sets, and its elements of the shared maps.

No text of a user gets into a rule: names are digests, addresses and numbers were parsed, protocols
come from a table.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

from lightkube.models.core_v1 import Service, ServicePort, ServiceSpec
from lightkube.models.discovery_v1 import EndpointSlice

from corral.node.network.conntrack import PROTOCOLS as TRACKED_PROTOCOLS
from corral.node.network.ingress import ADDRESS as INGRESS_ADDRESS
from corral.node.proxy.backends import PROTOCOLS, Backend, Backends, address, select_backends
from corral.reconcile.objects import key_of

DEFAULT_AFFINITY_SECONDS = 10800
"""Session affinity timeout of a Service that sets none."""
MAX_AFFINITY_SECONDS = 86400
REFUSE = "goto refuse"
DROP = "drop"
ALLOCATED, EXTERNAL = range(2)
"""Ranks: an allocated address has precedence over one that a Service merely names (externalIPs)."""


class ElementKey(NamedTuple):
    """The key of an element in a map or set of the table."""

    map: str
    key: str


class Claim(NamedTuple):
    """A Service's value for an element; of several claims the one with the lowest rank counts."""

    rank: int
    value: str


class Frontend(NamedTuple):
    """Address, or None for all of the node's own, and port that clients connect to."""

    protocol: str
    address: IPv4Address | IPv6Address | None
    port: int


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """The addresses of the cluster: Service CIDRs, pod CIDRs, node addresses."""

    services: Sequence[IPv4Network | IPv6Network] = ()
    pods: Sequence[IPv4Network | IPv6Network] = ()
    nodes: Sequence[IPv4Address | IPv6Address] = ()

    def contains(self, address: IPv4Address | IPv6Address) -> bool:
        """Report whether an address is a Service's or a pod's: it is never redirected."""
        return any(address in each for each in (*self.services, *self.pods))


NO_ADDRESSES = ClusterAddresses()


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """The rules of one Service."""

    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    elements: dict[ElementKey, Claim] = field(default_factory=dict)
    backends: dict[Frontend, frozenset[Backend]] = field(default_factory=dict)
    """The backends of each frontend, for UDP and TCP.  Flows to others are stale, unless they are
    established connections."""


NO_RULES = ServiceRules()
"""The rules of a Service that has none."""


def rules_for(
    service: Service,
    slices: Sequence[EndpointSlice],
    nodes: Collection[str],
    addresses_: ClusterAddresses = NO_ADDRESSES,
) -> ServiceRules:
    """Return the rules of a Service; ``nodes`` are this host's."""
    spec = service.spec
    if spec is None or spec.type == "ExternalName" or spec.clusterIP in ("None", "", None):
        return NO_RULES
    builder = _Builder(service, spec, slices, nodes, addresses_)
    for version in sorted({each.version for each in builder.addresses}):
        for port in spec.ports or ():
            if (port.protocol or "TCP") in PROTOCOLS and 0 < port.port < 1 << 16:
                builder.add(port, version)
    return builder.rules


def host_port(spec: ServiceSpec, port: ServicePort) -> int:
    """Return the port in the machine namespace for connections from the host; 0 if none.

    It is the node port; a load balancer without one uses its own port.
    """
    if spec.type not in ("NodePort", "LoadBalancer"):
        return 0
    is_ours = spec.type == "LoadBalancer" and not spec.loadBalancerClass
    number = port.nodePort or (port.port if is_ours else 0)
    return number if 0 < number < 1 << 16 else 0


class _Builder:
    """Builds the rules of a Service, port by port."""

    def __init__(
        self,
        service: Service,
        spec: ServiceSpec,
        slices: Sequence[EndpointSlice],
        nodes: Collection[str],
        addresses_: ClusterAddresses,
    ) -> None:
        self.rules = ServiceRules()
        self.addresses = _parse_addresses(spec.clusterIPs or [spec.clusterIP or ""])
        self._key = key_of(service)
        self._spec = spec
        self._slices = slices
        self._nodes = nodes
        self._affinity = _affinity_seconds(spec)
        # Admission may have changed since the Service was stored: filter again.
        self._external = [
            each
            for each in _parse_addresses(spec.externalIPs or ())
            if each not in addresses_.nodes
        ]
        if spec.type == "LoadBalancer" and service.status and service.status.loadBalancer:
            # Connections to the load balancer's address need not leave the node.
            ingress = service.status.loadBalancer.ingress or ()
            self._external += _parse_addresses(each.ip or "" for each in ingress)
        self._external = [each for each in self._external if not addresses_.contains(each)]

    def add(self, port: ServicePort, version: int) -> None:
        """Add one port for one IP family."""
        candidates = select_backends(port, self._slices, version, self._nodes)
        protocol = PROTOCOLS[port.protocol or "TCP"]
        seed = f"{self._key}/{port.name or ''}/{protocol}/{version}"
        selected, verdict = self._verdict(
            candidates, self._spec.internalTrafficPolicy, seed, protocol
        )
        for each in self.addresses:
            if each.version == version:
                frontend = Frontend(protocol, each, port.port)
                self._add_frontend(frontend, version, Claim(ALLOCATED, verdict), selected)
        frontends = [
            (Frontend(protocol, each, port.port), EXTERNAL)
            for each in self._external
            if each.version == version and not each.is_loopback and not each.is_link_local
        ]
        number = host_port(self._spec, port)
        if port.nodePort and number:
            frontends.append((Frontend(protocol, None, number), ALLOCATED))
        elif number and version == INGRESS_ADDRESS.version:
            # Only at this address: on the host's own ones another program may have this port.
            frontends.append((Frontend(protocol, INGRESS_ADDRESS.ip, number), ALLOCATED))
        if frontends:
            policy = self._spec.externalTrafficPolicy
            selected, verdict = self._verdict(candidates, policy, seed, protocol)
            for frontend, rank in frontends:
                self._add_frontend(frontend, version, Claim(rank, verdict), selected)

    def _verdict(
        self, candidates: Backends, policy: str | None, seed: str, protocol: str
    ) -> tuple[tuple[Backend, ...], str]:
        """Return the backends under a traffic policy, and the verdict that leads to them."""
        selected = candidates.local if policy == "Local" else candidates.all
        if not selected:
            # As kube-proxy: with externalTrafficPolicy Local a node without endpoints drops
            # packets.
            return (), DROP if candidates.all else REFUSE
        if selected != candidates.all:
            seed += "/local"
        name = f"service-{_digest(seed)}"
        version = _version(selected[0])
        for each in selected:
            element = ElementKey(f"hairpin{version}", f"{each.address} . {each.address}")
            self.rules.elements[element] = Claim(ALLOCATED, "")
        has_affinity = bool(self._affinity)
        self.rules.chains[name] = (
            self._affinity_rules(selected, seed, protocol)
            if has_affinity
            else _random_backend_rules(protocol, selected)
        )
        return selected, f"goto {name}"

    def _affinity_rules(
        self, selected: Sequence[Backend], seed: str, protocol: str
    ) -> tuple[str, ...]:
        """Return rules with session affinity: each endpoint has a set of its recent clients."""
        ipv4 = _version(selected[0]) == 4
        family, kind = ("ip", "ipv4_addr") if ipv4 else ("ip6", "ipv6_addr")
        seconds = self._affinity
        affinity_rules, endpoint_verdicts = [], []
        for each in selected:
            digest = _digest(f"{seed}/{each.address}/{each.port}")
            # The timeout of a set cannot be changed, so its name includes the timeout.
            clients, chain = f"clients-{digest}-{seconds}", f"endpoint-{digest}"
            declaration = f"type {kind}; flags dynamic,timeout; timeout {seconds}s;"
            self.rules.sets[clients] = declaration
            update = f"update @{clients} {{ {family} saddr }}"
            self.rules.chains[chain] = (update, _dnat(protocol, each))
            affinity_rules.append(f"{family} saddr @{clients} goto {chain}")
            endpoint_verdicts.append(f"goto {chain}")
        entries = ",\n".join(
            f"\t\t{number} : {verdict}" for number, verdict in enumerate(endpoint_verdicts)
        )
        random_choice = f"numgen random mod {len(selected)} vmap {{\n{entries}\n\t}}"
        return (*affinity_rules, random_choice, endpoint_verdicts[-1])

    def _add_frontend(
        self, frontend: Frontend, version: int, claim: Claim, selected: Iterable[Backend]
    ) -> None:
        if frontend.address is None:
            element = ElementKey(f"nodeports{version}", f"{frontend.protocol} . {frontend.port}")
        else:
            element = ElementKey(
                f"services{version}", f"{frontend.address} . {frontend.protocol} . {frontend.port}"
            )
        self.rules.elements[element] = claim
        if frontend.protocol in TRACKED_PROTOCOLS:
            self.rules.backends[frontend] = frozenset(selected)


def _random_backend_rules(protocol: str, selected: Sequence[Backend]) -> tuple[str, ...]:
    """Return rules that select a random backend.

    While a rule is replaced, the kernel empties its map before it removes the rule: a packet that
    finds no entry goes on to the next rule.
    """
    if len(selected) == 1:
        return (_dnat(protocol, selected[0]),)
    family = "ip" if _version(selected[0]) == 4 else "ip6"
    entries = ",\n".join(
        f"\t\t{number} : {each.address} . {each.port}" for number, each in enumerate(selected)
    )
    random_choice = f"numgen random mod {len(selected)} map {{\n{entries}\n\t}}"
    return f"meta l4proto {protocol} dnat {family} to {random_choice}", _dnat(
        protocol, selected[-1]
    )


def _dnat(protocol: str, backend: Backend) -> str:
    """Return the DNAT rule to one backend."""
    if _version(backend) == 6:
        return f"meta l4proto {protocol} dnat ip6 to [{backend.address}]:{backend.port}"
    return f"meta l4proto {protocol} dnat ip to {backend.address}:{backend.port}"


def _version(backend: Backend) -> int:
    return 6 if ":" in backend.address else 4


def _parse_addresses(texts: Iterable[str]) -> list[IPv4Address | IPv6Address]:
    return [parsed for text in texts if (parsed := address(text)) is not None]


def _affinity_seconds(spec: ServiceSpec) -> int:
    if spec.sessionAffinity != "ClientIP":
        return 0
    config = spec.sessionAffinityConfig
    seconds = config.clientIP.timeoutSeconds if config and config.clientIP else None
    return min(max(seconds or DEFAULT_AFFINITY_SECONDS, 1), MAX_AFFINITY_SECONDS)


def _digest(seed: str) -> str:
    return blake2s(seed.encode(), digest_size=8).hexdigest()
