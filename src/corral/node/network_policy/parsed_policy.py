"""A NetworkPolicy as far as it can be understood without knowing any pod.  Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from ipaddress import ip_address, ip_network
from typing import NamedTuple

import msgspec
from lightkube.models.core_v1 import Pod
from lightkube.models.meta_v1 import LabelSelector as Selection
from lightkube.models.networking_v1 import (
    IPBlock,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
)

from corral.api.selectors import LabelSelector, label_selector
from corral.node.network.netlink import Network
from corral.reconcile.objects import key_of, labels_of

INGRESS, EGRESS = "ingress", "egress"
PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
"""What the packet filter calls them."""
_EVERYTHING = LabelSelector()


class Span(NamedTuple):
    """Addresses from the first to the last, as numbers of one IP version."""

    first: int
    last: int


class Ports(NamedTuple):
    """Ports of a protocol: from the first to the last; from 0: all of them."""

    protocol: str
    first: int
    last: int


class PortName(NamedTuple):
    """A port that each pod may have elsewhere."""

    protocol: str
    name: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Pods, by their labels and their namespace's; None: the namespace of the policy."""

    pods: LabelSelector
    namespaces: LabelSelector | None

    def matches(
        self, home: str, member: "Member", namespaces: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Whether a pod is meant, where the policy is at ``home``."""
        if self.namespaces is None:
            is_there = member.namespace == home
        else:
            is_there = self.namespaces.matches(namespaces.get(member.namespace))
        return is_there and self.pods.matches(member.labels)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is allowed: traffic with any of these, at any of these ports."""

    anybody: bool
    """Whether no peer is named: everybody is meant, inside and outside."""
    peers: Sequence[Peer]
    blocks: Mapping[int, Sequence[Span]]
    """By IP version, what the ipBlocks come to."""
    every_port: bool
    ports: Sequence[Ports]
    names: Sequence[PortName]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a policy allows to the pods that it selects; a direction without rules forbids all."""

    namespace: str
    name: str
    digest: str
    """Another one for each other content: what is made of it never changes."""
    selector: LabelSelector
    rules: Mapping[str, Sequence[Rule]]
    """By direction; one that is not in here is not restricted."""

    def each(self) -> Iterator[tuple[str, int, Rule]]:
        """Every rule, with its direction and its number in it."""
        for way, rules in self.rules.items():
            for number, rule in enumerate(rules):
                yield way, number, rule

    def selects(self, member: "Member") -> bool:
        return member.namespace == self.namespace and self.selector.matches(member.labels)


@dataclass(frozen=True, slots=True)
class Member:
    """What policies need to know of a pod that has addresses."""

    namespace: str
    labels: Mapping[str, str]
    addresses: Sequence[str]
    ports: Sequence[tuple[PortName, int]]


def policy_of(policy: NetworkPolicy) -> Policy:
    """Read a policy.  Raises BadRequest for a selector that cannot be understood."""
    spec, key = policy.spec, key_of(policy)
    assert spec is not None
    content = b"%s\0%s\0" % (key.namespace.encode(), key.name.encode()) + msgspec.json.encode(spec)
    types = spec.policyTypes or ["Ingress", *(["Egress"] if spec.egress else [])]
    rules = {}
    if "Ingress" in types:
        rules[INGRESS] = tuple(_rule(one.from_, one.ports) for one in spec.ingress or ())
    if "Egress" in types:
        rules[EGRESS] = tuple(_rule(one.to, one.ports) for one in spec.egress or ())
    return Policy(
        namespace=key.namespace,
        name=key.name,
        digest=blake2s(content, digest_size=8).hexdigest(),
        selector=_selector(spec.podSelector) or _EVERYTHING,
        rules=rules,
    )


def member_of(pod: Pod, ours: Iterable[Network]) -> Member | None:
    """A pod that has addresses among ours, and has not ended; None for any other."""
    status = pod.status
    if status is None or status.phase in ("Succeeded", "Failed"):
        return None
    told = [one.ip for one in status.podIPs or () if one.ip] or [status.podIP or ""]
    addresses = tuple(text for text in map(_canonical, told) if text and _is_in(text, ours))
    containers = pod.spec.containers if pod.spec else ()
    ports = tuple(
        (PortName(PROTOCOLS[port.protocol or "TCP"], port.name), port.containerPort)
        for container in containers
        for port in container.ports or ()
        if port.name and (port.protocol or "TCP") in PROTOCOLS
    )
    if not addresses:
        return None
    return Member(key_of(pod).namespace, dict(labels_of(pod)), addresses, ports)


def spans(blocks: Iterable[IPBlock], version: int) -> list[Span]:
    """The addresses of an IP version in any of these blocks, less what each block excepts."""
    found: list[Span] = []
    for block in blocks:
        whole = _span(block.cidr, version)
        if whole is None:
            continue
        holes = [hole for text in block.except_ or () if (hole := _span(text, version))]
        first = whole.first
        for hole in sorted(holes):
            if first < hole.first:
                found.append(Span(first, min(hole.first - 1, whole.last)))
            first = max(first, hole.last + 1)
        if first <= whole.last:
            found.append(Span(first, whole.last))
    return _united(found)


def _united(found: Iterable[Span]) -> list[Span]:
    united: list[Span] = []
    for span in sorted(found):
        if united and span.first <= united[-1].last + 1:
            united[-1] = Span(united[-1].first, max(united[-1].last, span.last))
        else:
            united.append(span)
    return united


def _span(cidr: str, version: int) -> Span | None:
    try:
        network = ip_network(cidr, strict=False)
    except ValueError:
        return None
    if network.version != version:
        return None
    return Span(int(network.network_address), int(network.broadcast_address))


def _rule(
    peers: Sequence[NetworkPolicyPeer] | None, ports: Sequence[NetworkPolicyPort] | None
) -> Rule:
    blocks = [one.ipBlock for one in peers or () if one.ipBlock is not None]
    return Rule(
        anybody=not peers,
        peers=tuple(_peer(one) for one in peers or () if one.ipBlock is None),
        blocks={version: found for version in (4, 6) if (found := spans(blocks, version))},
        every_port=not ports,
        ports=tuple(_ports(one) for one in ports or () if not isinstance(one.port, str)),
        names=tuple(
            PortName(_protocol(one), one.port) for one in ports or () if isinstance(one.port, str)
        ),
    )


def _peer(peer: NetworkPolicyPeer) -> Peer:
    return Peer(_selector(peer.podSelector) or _EVERYTHING, _selector(peer.namespaceSelector))


def _ports(port: NetworkPolicyPort) -> Ports:
    if port.port is None:
        return Ports(_protocol(port), 0, 65535)
    first = int(port.port)
    return Ports(_protocol(port), first, port.endPort or first)


def _protocol(port: NetworkPolicyPort) -> str:
    return PROTOCOLS[port.protocol or "TCP"]


def _selector(selection: Selection | None) -> LabelSelector | None:
    return None if selection is None else label_selector(msgspec.to_builtins(selection))


def _canonical(text: str) -> str:
    """The one spelling of an address; empty where it is none."""
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


def _is_in(text: str, ranges: Iterable[Network]) -> bool:
    address = ip_address(text)
    return any(address in each for each in ranges)
