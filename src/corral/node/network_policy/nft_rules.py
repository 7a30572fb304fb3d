"""NetworkPolicies as nftables rules.  No I/O.

The chain ``ingress`` filters by destination, ``egress`` by source, both after DNAT of Services.  A
map leads from a pod's address to a chain for the set of policies that select it, which jumps to the
chain of each policy, and drops what none accepts.  Sets hold the
addresses of peers: as pods come and go, only elements change.

Policies apply to established connections, too: packets of the side that opened the connection are
filtered one by one, replies pass. The node itself, by the host's link and as gateway (DNS, the
API), is never filtered, as in every Kubernetes cluster.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2s
from ipaddress import IPv4Address, IPv6Address
from itertools import product

from corral.node.network.namespace_nft_rules import HOST_LINK
from corral.node.network.netlink import Network
from corral.node.network_policy.parsed_policy import (
    EGRESS,
    INGRESS,
    AddressRange,
    Policy,
    PortRange,
    Rule,
)

TABLE = "inet corral_policy"
PROBE = f"add chain {TABLE} {INGRESS}\n"
"""A transaction that changes nothing, and fails if the table does not exist."""
_TYPES = {4: "ipv4_addr", 6: "ipv6_addr"}
_FAMILIES = {4: "ip", 6: "ip6"}
_ADDRESSES = {4: IPv4Address, 6: IPv6Address}
_PRIORITY = {EGRESS: "filter", INGRESS: "filter + 1"}
_POD_FIELD = {EGRESS: "saddr", INGRESS: "daddr"}
_PEER_FIELD = {EGRESS: "daddr", INGRESS: "saddr"}
_ACCEPT = "accept"


def empty_table(pods: Sequence[Network]) -> str:
    """Return the transaction that creates an empty table, or replaces one.

    ``pods`` are the pod CIDRs.  Packets from and to their addresses are dropped, unless the address
    has an element in a map: no pod is reachable before its policies apply.
    """
    lines = [f"table {TABLE}", f"delete table {TABLE}", f"table {TABLE} {{"]
    for version in sorted({each.version for each in pods}):
        kind = _TYPES[version]
        lines += [f"  set self{version} {{ type {kind} . {kind}; }}"]
        lines += [
            f"  map {direction}{version} {{ type {kind} : verdict; }}"
            for direction in (EGRESS, INGRESS)
        ]
    for direction in (EGRESS, INGRESS):
        lines += [
            f"  chain {direction} {{",
            *(f"    {line}" for line in _base_rules(direction, pods)),
            "  }",
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _base_rules(direction: str, pods: Sequence[Network]) -> Iterator[str]:
    yield f"type filter hook forward priority {_PRIORITY[direction]}; policy accept;"
    yield "ct state established ct direction reply accept"
    yield "ct state related accept"
    if direction == INGRESS:
        yield f'iifname "{HOST_LINK}" accept'
    for each in pods:
        family = _FAMILIES[each.version]
        yield f"{family} saddr . {family} daddr @self{each.version} accept"
        yield f"{family} {_POD_FIELD[direction]} vmap @{direction}{each.version}"
        yield f"{family} {_POD_FIELD[direction]} {each} drop"


REMOVAL = f"table {TABLE}\ndelete table {TABLE}\n"
"""The transaction that removes the table, if it exists."""


def chain_name(policy: Policy, direction: str) -> str:
    """Return the name of the chain that accepts what a policy allows."""
    return f"{direction}-{policy.digest}"


def set_name(policy: Policy, direction: str, number: int, content: str, version: int) -> str:
    """Return the name of a set of a rule: its peers (``pods``, ``blocks``) or its ``ports``."""
    return f"{direction}-{policy.digest}-{number}-{content}{version}"


def pod_chain(chains: Sequence[str], direction: str) -> tuple[str, list[str]]:
    """Return the name and the rules of the chain for pods that these policy chains select."""
    digest = blake2s(" ".join(chains).encode(), digest_size=8).hexdigest()
    return f"{direction}-of-{digest}", [*(f"jump {chain}" for chain in chains), "drop"]


def sets(policy: Policy, versions: Sequence[int]) -> dict[str, str]:
    """Return the declarations of a policy's sets; those of pods and ports are empty at first."""
    declarations = {}
    for (direction, number, rule), version in product(policy.each(), versions):
        kind = _TYPES[version]
        if rule.peers:
            declarations[set_name(policy, direction, number, "pods", version)] = f"type {kind};"
        if blocks := rule.blocks.get(version):
            elements = ", ".join(_format_range(range_, version) for range_ in blocks)
            name = set_name(policy, direction, number, "blocks", version)
            declarations[name] = f"type {kind}; flags interval; elements = {{ {elements} }};"
        if rule.port_names:
            name = set_name(policy, direction, number, "ports", version)
            declarations[name] = f"type {kind} . inet_proto . inet_service;"
    return declarations


def chain_rules(policy: Policy, direction: str, versions: Sequence[int]) -> list[str]:
    """Return the rules of a policy's chain: all accept."""
    return [
        " ".join([*peer, *port, _ACCEPT])
        for number, rule in enumerate(policy.rules[direction])
        for version in versions
        for peer in _peers(policy, direction, number, rule, version)
        for port in _ports(policy, direction, number, rule, version)
    ]


def _peers(
    policy: Policy, direction: str, number: int, rule: Rule, version: int
) -> Iterator[Sequence[str]]:
    if rule.all_peers:
        yield [f"meta nfproto ipv{version}"]
    field = f"{_FAMILIES[version]} {_PEER_FIELD[direction]}"
    if rule.peers:
        yield [f"{field} @{set_name(policy, direction, number, 'pods', version)}"]
    if version in rule.blocks:
        yield [f"{field} @{set_name(policy, direction, number, 'blocks', version)}"]


def _ports(
    policy: Policy, direction: str, number: int, rule: Rule, version: int
) -> Iterator[Sequence[str]]:
    if rule.all_ports:
        yield []
    for protocol in dict.fromkeys(each.protocol for each in rule.ports):
        yield [_port_match(protocol, rule.ports)]
    if rule.port_names:
        family = _FAMILIES[version]
        name = set_name(policy, direction, number, "ports", version)
        yield [f"{family} daddr . meta l4proto . th dport @{name}"]


def _port_match(protocol: str, ports: Sequence[PortRange]) -> str:
    ranges = sorted({(each.first, each.last) for each in ports if each.protocol == protocol})
    if any(first == 0 for first, _ in ranges):
        return f"meta l4proto {protocol}"
    united: list[tuple[int, int]] = []
    for first, last in ranges:
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(united[-1][1], last))
        else:
            united.append((first, last))
    numbers = [str(first) if first == last else f"{first}-{last}" for first, last in united]
    return f"{protocol} dport {{ {', '.join(numbers)} }}"


def _format_range(range_: AddressRange, version: int) -> str:
    first, last = (_ADDRESSES[version](each) for each in range_)
    return str(first) if first == last else f"{first}-{last}"
