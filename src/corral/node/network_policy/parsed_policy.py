"""NetworkPolicies, parsed, independent of pods."""

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
"""The protocols as nftables writes them."""
_ALL = LabelSelector()


class AddressRange(NamedTuple):
    """A range of addresses of one IP version, as integers, both ends included."""

    first: int
    last: int


class PortRange(NamedTuple):
    """A range of ports of a protocol; 0 to 65535 for all of them."""

    protocol: str
    first: int
    last: int


class PortName(NamedTuple):
    """A named port, whose number each pod defines."""

    protocol: str
    name: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A selector of pods and of namespaces; None for the policy's own namespace."""

    pods: LabelSelector
    namespaces: LabelSelector | None

    def matches(
        self, policy_namespace: str, pod: "PodInfo", namespaces: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Report whether a pod matches, for a policy in a namespace."""
        if self.namespaces is None:
            in_namespace = pod.namespace == policy_namespace
        else:
            in_namespace = self.namespaces.matches(namespaces.get(pod.namespace))
        return in_namespace and self.pods.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class Rule:
    """An ingress or egress rule: any of these peers, at any of these ports."""

    all_peers: bool
    """True if the rule names no peers: all addresses match, inside and outside."""
    peers: Sequence[Peer]
    blocks: Mapping[int, Sequence[AddressRange]]
    """By IP version, the ranges of the ipBlocks."""
    all_ports: bool
    ports: Sequence[PortRange]
    port_names: Sequence[PortName]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy; a direction without rules allows nothing."""

    namespace: str
    name: str
    digest: str
    """A digest of the content: the chains and sets that it names never change."""
    selector: LabelSelector
    rules: Mapping[str, Sequence[Rule]]
    """By direction; an absent one is not restricted."""

    def each(self) -> Iterator[tuple[str, int, Rule]]:
        """Return every rule with its direction and its index."""
        for direction, rules in self.rules.items():
            for number, rule in enumerate(rules):
                yield direction, number, rule

    def selects(self, pod: "PodInfo") -> bool:
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod with addresses, as far as policies need it."""

    namespace: str
    labels: Mapping[str, str]
    addresses: Sequence[str]
    ports: Sequence[tuple[PortName, int]]


def parse_policy(policy: NetworkPolicy) -> Policy:
    """Parse a policy.  Raises BadRequest for an invalid selector."""
    spec, key = policy.spec, key_of(policy)
    assert spec is not None
    content = b"%s\0%s\0" % (key.namespace.encode(), key.name.encode()) + msgspec.json.encode(spec)
    types = spec.policyTypes or ["Ingress", *(["Egress"] if spec.egress else [])]
    rules = {}
    if "Ingress" in types:
        rules[INGRESS] = tuple(_rule(each.from_, each.ports) for each in spec.ingress or ())
    if "Egress" in types:
        rules[EGRESS] = tuple(_rule(each.to, each.ports) for each in spec.egress or ())
    return Policy(
        namespace=key.namespace,
        name=key.name,
        digest=blake2s(content, digest_size=8).hexdigest(),
        selector=_selector(spec.podSelector) or _ALL,
        rules=rules,
    )


def pod_info(pod: Pod, pod_cidrs: Iterable[Network]) -> PodInfo | None:
    """Return a pod with addresses in the pod CIDRs that has not ended; None for others."""
    status = pod.status
    if status is None or status.phase in ("Succeeded", "Failed"):
        return None
    addresses_ = [each.ip for each in status.podIPs or () if each.ip] or [status.podIP or ""]
    addresses = tuple(
        text for text in map(_canonical, addresses_) if text and _is_in(text, pod_cidrs)
    )
    containers = pod.spec.containers if pod.spec else ()
    ports = tuple(
        (PortName(PROTOCOLS[port.protocol or "TCP"], port.name), port.containerPort)
        for container in containers
        for port in container.ports or ()
        if port.name and (port.protocol or "TCP") in PROTOCOLS
    )
    if not addresses:
        return None
    return PodInfo(key_of(pod).namespace, dict(labels_of(pod)), addresses, ports)


def address_ranges(blocks: Iterable[IPBlock], version: int) -> list[AddressRange]:
    """Return the ranges of an IP version in these blocks, without each block's exceptions."""
    ranges: list[AddressRange] = []
    for block in blocks:
        whole = _address_range(block.cidr, version)
        if whole is None:
            continue
        exceptions = [
            exception
            for text in block.except_ or ()
            if (exception := _address_range(text, version))
        ]
        first = whole.first
        for exception in sorted(exceptions):
            if first < exception.first:
                ranges.append(AddressRange(first, min(exception.first - 1, whole.last)))
            first = max(first, exception.last + 1)
        if first <= whole.last:
            ranges.append(AddressRange(first, whole.last))
    return merge_ranges(ranges)


def merge_ranges(ranges: Iterable[AddressRange]) -> list[AddressRange]:
    merged: list[AddressRange] = []
    for span in sorted(ranges):
        if merged and span.first <= merged[-1].last + 1:
            merged[-1] = AddressRange(merged[-1].first, max(merged[-1].last, span.last))
        else:
            merged.append(span)
    return merged


def _address_range(cidr: str, version: int) -> AddressRange | None:
    try:
        network = ip_network(cidr, strict=False)
    except ValueError:
        return None
    if network.version != version:
        return None
    return AddressRange(int(network.network_address), int(network.broadcast_address))


def _rule(
    peers: Sequence[NetworkPolicyPeer] | None, ports: Sequence[NetworkPolicyPort] | None
) -> Rule:
    blocks = [each.ipBlock for each in peers or () if each.ipBlock is not None]
    return Rule(
        all_peers=not peers,
        peers=tuple(_peer(each) for each in peers or () if each.ipBlock is None),
        blocks={
            version: ranges for version in (4, 6) if (ranges := address_ranges(blocks, version))
        },
        all_ports=not ports,
        ports=tuple(_ports(each) for each in ports or () if not isinstance(each.port, str)),
        port_names=tuple(
            PortName(_protocol(each), each.port)
            for each in ports or ()
            if isinstance(each.port, str)
        ),
    )


def _peer(peer: NetworkPolicyPeer) -> Peer:
    return Peer(_selector(peer.podSelector) or _ALL, _selector(peer.namespaceSelector))


def _ports(port: NetworkPolicyPort) -> PortRange:
    if port.port is None:
        return PortRange(_protocol(port), 0, 65535)
    first = int(port.port)
    return PortRange(_protocol(port), first, port.endPort or first)


def _protocol(port: NetworkPolicyPort) -> str:
    return PROTOCOLS[port.protocol or "TCP"]


def _selector(selection: Selection | None) -> LabelSelector | None:
    return None if selection is None else label_selector(msgspec.to_builtins(selection))


def _canonical(text: str) -> str:
    """Return the canonical form of an address; empty if it is invalid."""
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


def _is_in(text: str, ranges: Iterable[Network]) -> bool:
    address = ip_address(text)
    return any(address in each for each in ranges)
