"""What one Service needs of the packet filter: its chains, its sets, and its places in the maps.

Nothing that somebody wrote gets into a rule as it is: names are digests, addresses and numbers were
parsed, protocols come out of a table.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

from lightkube.models.core_v1 import Service, ServicePort, ServiceSpec
from lightkube.models.discovery_v1 import EndpointSlice

from corral.node.network.conntrack import PROTOCOLS as FORGOTTEN
from corral.node.network.ingress import ADDRESS as INBOUND
from corral.node.proxy.backends import PROTOCOLS, Backend, Choice, address, choice
from corral.reconcile.objects import key_of

AFFINITY_SECONDS = 10800
"""How long a client stays with its endpoint where the Service does not say."""
LONGEST_AFFINITY = 86400
REFUSE = "goto refuse"
DROP = "drop"
EXACT, CLAIMED = range(2)
"""Ranks: an address that the server gave goes before one that somebody just names."""


class Slot(NamedTuple):
    """A place in a map or set of the table."""

    map: str
    key: str


class Claim(NamedTuple):
    """What a Service wants in a place; of several claims the lowest counts."""

    rank: int
    value: str


class Door(NamedTuple):
    """Where clients call: an address, or None for every one of the machine's own, and a port."""

    protocol: str
    address: IPv4Address | IPv6Address | None
    port: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The addresses among which Services are: of all Services, of all pods, and of the nodes."""

    services: Sequence[IPv4Network | IPv6Network] = ()
    pods: Sequence[IPv4Network | IPv6Network] = ()
    nodes: Sequence[IPv4Address | IPv6Address] = ()

    def has(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether an address is a Service's or a pod's: it is led nowhere else."""
        return any(address in each for each in (*self.services, *self.pods))


NOWHERE = Surroundings()


@dataclass(frozen=True, slots=True)
class Part:
    """A Service as the packet filter sees it."""

    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    elements: dict[Slot, Claim] = field(default_factory=dict)
    answering: dict[Door, frozenset[Backend]] = field(default_factory=dict)
    """By door for UDP and TCP: who may answer.  Flows to others are stale, unless they are open
    connections."""


NO_PART = Part()
"""A Service that the packet filter knows nothing of."""


def part(
    service: Service,
    slices: Sequence[EndpointSlice],
    nodes: Collection[str],
    surroundings: Surroundings = NOWHERE,
) -> Part:
    """The part of a Service; ``nodes`` are this machine's."""
    spec = service.spec
    if spec is None or spec.type == "ExternalName" or spec.clusterIP in ("None", "", None):
        return NO_PART
    maker = _Maker(service, spec, slices, nodes, surroundings)
    for version in sorted({each.version for each in maker.addresses}):
        for port in spec.ports or ():
            if (port.protocol or "TCP") in PROTOCOLS and 0 < port.port < 1 << 16:
                maker.add(port, version)
    return maker.part


def host_port(spec: ServiceSpec, port: ServicePort) -> int:
    """The port at which the machine namespace expects what comes in from the host; 0: none.

    It is the node port; a load balancer without one has its own port there.
    """
    if spec.type not in ("NodePort", "LoadBalancer"):
        return 0
    is_ours = spec.type == "LoadBalancer" and not spec.loadBalancerClass
    number = port.nodePort or (port.port if is_ours else 0)
    return number if 0 < number < 1 << 16 else 0


class _Maker:
    """Puts a part together, port by port."""

    def __init__(
        self,
        service: Service,
        spec: ServiceSpec,
        slices: Sequence[EndpointSlice],
        nodes: Collection[str],
        surroundings: Surroundings,
    ) -> None:
        self.part = Part()
        self.addresses = _parsed(spec.clusterIPs or [spec.clusterIP or ""])
        self._key = key_of(service)
        self._spec = spec
        self._slices = slices
        self._nodes = nodes
        self._affinity = _affinity_seconds(spec)
        # Who stored it may have been allowed what nobody is any more.
        self._outer = [
            each for each in _parsed(spec.externalIPs or ()) if each not in surroundings.nodes
        ]
        if spec.type == "LoadBalancer" and service.status and service.status.loadBalancer:
            # What is balanced at an address of the host need not leave the machine to get there.
            ingress = service.status.loadBalancer.ingress or ()
            self._outer += _parsed(each.ip or "" for each in ingress)
        self._outer = [each for each in self._outer if not surroundings.has(each)]

    def add(self, port: ServicePort, version: int) -> None:
        """Add one port in one family."""
        backends = choice(port, self._slices, version, self._nodes)
        protocol = PROTOCOLS[port.protocol or "TCP"]
        seed = f"{self._key}/{port.name or ''}/{protocol}/{version}"
        chosen, verdict = self._verdict(backends, self._spec.internalTrafficPolicy, seed, protocol)
        for each in self.addresses:
            if each.version == version:
                door = Door(protocol, each, port.port)
                self._open(door, version, Claim(EXACT, verdict), chosen)
        doors = [
            (Door(protocol, each, port.port), CLAIMED)
            for each in self._outer
            if each.version == version and not each.is_loopback and not each.is_link_local
        ]
        number = host_port(self._spec, port)
        if port.nodePort and number:
            doors.append((Door(protocol, None, number), EXACT))
        elif number and version == INBOUND.version:
            # There only: this machine's own addresses have other ports of that number.
            doors.append((Door(protocol, INBOUND.ip, number), EXACT))
        if doors:
            policy = self._spec.externalTrafficPolicy
            chosen, verdict = self._verdict(backends, policy, seed, protocol)
            for door, rank in doors:
                self._open(door, version, Claim(rank, verdict), chosen)

    def _verdict(
        self, backends: Choice, policy: str | None, seed: str, protocol: str
    ) -> tuple[tuple[Backend, ...], str]:
        """Who gets connections under a traffic policy, and what leads there."""
        chosen = backends.local if policy == "Local" else backends.all
        if not chosen:
            # To a node without endpoint no load balancer would have sent it.
            return (), DROP if backends.all else REFUSE
        if chosen != backends.all:
            seed += "/local"
        name = f"service-{_digest(seed)}"
        version = _version(chosen[0])
        for each in chosen:
            slot = Slot(f"hairpin{version}", f"{each.address} . {each.address}")
            self.part.elements[slot] = Claim(EXACT, "")
        sticky = bool(self._affinity)
        self.part.chains[name] = (
            self._sticky(chosen, seed, protocol) if sticky else _spread(protocol, chosen)
        )
        return chosen, f"goto {name}"

    def _sticky(self, chosen: Sequence[Backend], seed: str, protocol: str) -> tuple[str, ...]:
        """Who has been here lately goes where they went: each endpoint has a set of its clients."""
        ipv4 = _version(chosen[0]) == 4
        family, kind = ("ip", "ipv4_addr") if ipv4 else ("ip6", "ipv6_addr")
        seconds = self._affinity
        known, fresh = [], []
        for each in chosen:
            digest = _digest(f"{seed}/{each.address}/{each.port}")
            # A set cannot change how long it remembers: another time makes another set.
            clients, chain = f"clients-{digest}-{seconds}", f"endpoint-{digest}"
            declaration = f"type {kind}; flags dynamic,timeout; timeout {seconds}s;"
            self.part.sets[clients] = declaration
            remember = f"update @{clients} {{ {family} saddr }}"
            self.part.chains[chain] = (remember, _to(protocol, each))
            known.append(f"{family} saddr @{clients} goto {chain}")
            fresh.append(f"goto {chain}")
        lines = ",\n".join(f"\t\t{number} : {verdict}" for number, verdict in enumerate(fresh))
        draw = f"numgen random mod {len(chosen)} vmap {{\n{lines}\n\t}}"
        return (*known, draw, fresh[-1])

    def _open(self, door: Door, version: int, claim: Claim, chosen: Iterable[Backend]) -> None:
        if door.address is None:
            slot = Slot(f"nodeports{version}", f"{door.protocol} . {door.port}")
        else:
            slot = Slot(f"services{version}", f"{door.address} . {door.protocol} . {door.port}")
        self.part.elements[slot] = claim
        if door.protocol in FORGOTTEN:
            self.part.answering[door] = frozenset(chosen)


def _spread(protocol: str, chosen: Sequence[Backend]) -> tuple[str, ...]:
    """The rules that draw one of several backends.

    Of a rule that is replaced in that moment the kernel empties the map before it lets go of the
    rule: whoever meets it so draws nothing, and goes where the next rule leads.
    """
    if len(chosen) == 1:
        return (_to(protocol, chosen[0]),)
    family = "ip" if _version(chosen[0]) == 4 else "ip6"
    lines = ",\n".join(
        f"\t\t{number} : {each.address} . {each.port}" for number, each in enumerate(chosen)
    )
    draw = f"numgen random mod {len(chosen)} map {{\n{lines}\n\t}}"
    return f"meta l4proto {protocol} dnat {family} to {draw}", _to(protocol, chosen[-1])


def _to(protocol: str, backend: Backend) -> str:
    """The rule that leads to one backend."""
    if _version(backend) == 6:
        return f"meta l4proto {protocol} dnat ip6 to [{backend.address}]:{backend.port}"
    return f"meta l4proto {protocol} dnat ip to {backend.address}:{backend.port}"


def _version(backend: Backend) -> int:
    return 6 if ":" in backend.address else 4


def _parsed(texts: Iterable[str]) -> list[IPv4Address | IPv6Address]:
    return [parsed for text in texts if (parsed := address(text)) is not None]


def _affinity_seconds(spec: ServiceSpec) -> int:
    if spec.sessionAffinity != "ClientIP":
        return 0
    config = spec.sessionAffinityConfig
    seconds = config.clientIP.timeoutSeconds if config and config.clientIP else None
    return min(max(seconds or AFFINITY_SECONDS, 1), LONGEST_AFFINITY)


def _digest(seed: str) -> str:
    return blake2s(seed.encode(), digest_size=8).hexdigest()
