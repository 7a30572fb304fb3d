"""Policies as the packet filter's language has them.  Pure.

``ingress`` looks at what a packet wants to reach, ``egress`` at where it comes from, each after
Services were led to their endpoints.  A map leads from a pod's address to the chain for the set of
policies that select it; that chain asks one policy after the other, and drops what none allows.
Sets hold the addresses of peers: when pods come and go, only elements change.

A policy counts for open connections too: packets of whoever opened a connection are judged one by
one, those that answer pass.  The machine itself, as the host by its link and as gateway (DNS, the
API), is never kept out: so it is with every node of Kubernetes.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2s
from ipaddress import IPv4Address, IPv6Address
from itertools import product

from corral.node.network.namespace_nft_rules import HOST_LINK
from corral.node.network.netlink import Network
from corral.node.network_policy.parsed_policy import EGRESS, INGRESS, Policy, Ports, Rule, Span

TABLE = "inet corral_policy"
PROBE = f"add chain {TABLE} {INGRESS}\n"
"""A transaction that changes nothing, and fails where the table is not there."""
_TYPES = {4: "ipv4_addr", 6: "ipv6_addr"}
_FAMILIES = {4: "ip", 6: "ip6"}
_ADDRESSES = {4: IPv4Address, 6: IPv6Address}
_PRIORITY = {EGRESS: "filter", INGRESS: "filter + 1"}
_OWN = {EGRESS: "saddr", INGRESS: "daddr"}
_PEER = {EGRESS: "daddr", INGRESS: "saddr"}
_ALLOWED = "accept"


def frame(pods: Sequence[Network]) -> str:
    """The transaction that puts the empty table in place, whatever stood there.

    ``pods`` are the ranges of all pods: to and from an address of them that no map knows, nothing
    passes, so that no pod is open before its policies are known.
    """
    lines = [f"table {TABLE}", f"delete table {TABLE}", f"table {TABLE} {{"]
    for version in sorted({each.version for each in pods}):
        kind = _TYPES[version]
        lines += [f"  set self{version} {{ type {kind} . {kind}; }}"]
        lines += [f"  map {way}{version} {{ type {kind} : verdict; }}" for way in (EGRESS, INGRESS)]
    for way in (EGRESS, INGRESS):
        lines += [f"  chain {way} {{", *(f"    {line}" for line in _base(way, pods)), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def _base(way: str, pods: Sequence[Network]) -> Iterator[str]:
    yield f"type filter hook forward priority {_PRIORITY[way]}; policy accept;"
    yield "ct state established ct direction reply accept"
    yield "ct state related accept"
    if way == INGRESS:
        yield f'iifname "{HOST_LINK}" accept'
    for each in pods:
        family = _FAMILIES[each.version]
        yield f"{family} saddr . {family} daddr @self{each.version} accept"
        yield f"{family} {_OWN[way]} vmap @{way}{each.version}"
        yield f"{family} {_OWN[way]} {each} drop"


REMOVAL = f"table {TABLE}\ndelete table {TABLE}\n"
"""The transaction after which there is no table, whether or not there was one."""


def chain_of(policy: Policy, way: str) -> str:
    """The chain that accepts what a policy allows."""
    return f"{way}-{policy.digest}"


def set_of(policy: Policy, way: str, number: int, what: str, version: int) -> str:
    """A set of a policy's rule: its peers (``pods``, ``blocks``) or their ``ports``."""
    return f"{way}-{policy.digest}-{number}-{what}{version}"


def gathered(chains: Sequence[str], way: str) -> tuple[str, list[str]]:
    """The chain for pods that these chains are about: its name, and its rules."""
    digest = blake2s(" ".join(chains).encode(), digest_size=8).hexdigest()
    return f"{way}-of-{digest}", [*(f"jump {chain}" for chain in chains), "drop"]


def sets(policy: Policy, versions: Sequence[int]) -> dict[str, str]:
    """The sets of a policy: name → declaration.  Those of pods and of ports are empty at first."""
    found = {}
    for (way, number, rule), version in product(policy.each(), versions):
        kind = _TYPES[version]
        if rule.peers:
            found[set_of(policy, way, number, "pods", version)] = f"type {kind};"
        if blocks := rule.blocks.get(version):
            elements = ", ".join(_spelled(span, version) for span in blocks)
            name = set_of(policy, way, number, "blocks", version)
            found[name] = f"type {kind}; flags interval; elements = {{ {elements} }};"
        if rule.names:
            name = set_of(policy, way, number, "ports", version)
            found[name] = f"type {kind} . inet_proto . inet_service;"
    return found


def chain_rules(policy: Policy, way: str, versions: Sequence[int]) -> list[str]:
    """The rules of a policy's chain: each accepts, none refuses."""
    return [
        " ".join([*peer, *port, _ALLOWED])
        for number, rule in enumerate(policy.rules[way])
        for version in versions
        for peer in _peers(policy, way, number, rule, version)
        for port in _ports(policy, way, number, rule, version)
    ]


def _peers(
    policy: Policy, way: str, number: int, rule: Rule, version: int
) -> Iterator[Sequence[str]]:
    if rule.anybody:
        yield [f"meta nfproto ipv{version}"]
    field = f"{_FAMILIES[version]} {_PEER[way]}"
    if rule.peers:
        yield [f"{field} @{set_of(policy, way, number, 'pods', version)}"]
    if version in rule.blocks:
        yield [f"{field} @{set_of(policy, way, number, 'blocks', version)}"]


def _ports(
    policy: Policy, way: str, number: int, rule: Rule, version: int
) -> Iterator[Sequence[str]]:
    if rule.every_port:
        yield []
    for protocol in dict.fromkeys(each.protocol for each in rule.ports):
        yield [_numbers(protocol, rule.ports)]
    if rule.names:
        family = _FAMILIES[version]
        name = set_of(policy, way, number, "ports", version)
        yield [f"{family} daddr . meta l4proto . th dport @{name}"]


def _numbers(protocol: str, ports: Sequence[Ports]) -> str:
    mine = sorted({(each.first, each.last) for each in ports if each.protocol == protocol})
    if any(first == 0 for first, _ in mine):
        return f"meta l4proto {protocol}"
    united: list[tuple[int, int]] = []
    for first, last in mine:
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(united[-1][1], last))
        else:
            united.append((first, last))
    numbers = [str(first) if first == last else f"{first}-{last}" for first, last in united]
    return f"{protocol} dport {{ {', '.join(numbers)} }}"


def _spelled(span: Span, version: int) -> str:
    first, last = (_ADDRESSES[version](each) for each in span)
    return str(first) if first == last else f"{first}-{last}"
