"""The nftables table of all Services: in full, and the changes from one state to the next.

The first packet of a connection is looked up in a map (address, protocol, port), jumps to the chain
of its Service, and is translated to a random endpoint.  Connection tracking translates all further
packets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from corral.api.object import Key
from corral.node.network import nft
from corral.node.proxy.backends import Backend
from corral.node.proxy.service_rules import (
    NO_RULES,
    Claim,
    ClusterAddresses,
    ElementKey,
    Frontend,
    ServiceRules,
)
from corral.node.proxy.session_affinity import AffinityClients

TABLE = "inet corral_services"
PROBE = f"add chain {TABLE} dispatch\n"
"""A transaction that changes nothing, and fails if the table does not exist."""

NO_CLIENTS: AffinityClients = {}
_MAX_ELEMENTS_PER_STATEMENT = 1000
_REJECT_RULES = ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")
DROP_UNKNOWN = f"flush chain {TABLE} refuse\nadd rule {TABLE} refuse drop"
"""Statements after which packets to unknown ports are dropped: clients retry."""
REJECT_UNKNOWN = "\n".join(
    [f"flush chain {TABLE} refuse", *(f"add rule {TABLE} refuse {rule}" for rule in _REJECT_RULES)]
)
"""Statements after which packets to unknown ports are rejected, as in a complete table."""

_MAPS = {
    "services4": "map services4 { type ipv4_addr . inet_proto . inet_service : verdict; }",
    "services6": "map services6 { type ipv6_addr . inet_proto . inet_service : verdict; }",
    "nodeports4": "map nodeports4 { type inet_proto . inet_service : verdict; }",
    "nodeports6": "map nodeports6 { type inet_proto . inet_service : verdict; }",
    "hairpin4": "set hairpin4 { type ipv4_addr . ipv4_addr; }",
    "hairpin6": "set hairpin6 { type ipv6_addr . ipv6_addr; }",
}


@dataclass(slots=True)
class _Change:
    """Differences, in the order in which nftables needs them."""

    new_sets: dict[str, str] = field(default_factory=dict)
    new_chains: list[str] = field(default_factory=list)
    bodies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    removed: dict[ElementKey, str] = field(default_factory=dict)
    added: dict[ElementKey, str] = field(default_factory=dict)
    old_chains: list[str] = field(default_factory=list)
    old_sets: list[str] = field(default_factory=list)


class Rules:
    """The rules of all Services, as in the kernel once the returned transactions are applied."""

    def __init__(self, addresses: ClusterAddresses) -> None:
        self.addresses = addresses
        self._rules: dict[Key, ServiceRules] = {}
        self._claims: dict[ElementKey, dict[Key, Claim]] = {}

    def rules_of(self, key: Key) -> ServiceRules:
        """Return the current rules of a Service."""
        return self._rules.get(key, NO_RULES)

    def backends(self) -> dict[Frontend, frozenset[Backend]]:
        """Return the backends of every frontend."""
        return {
            frontend: backends
            for each in self._rules.values()
            for frontend, backends in each.backends.items()
        }

    def change(self, updates: Mapping[Key, ServiceRules]) -> str:
        """Set the rules of some Services; return the transaction, empty if nothing changes.

        Empty rules remove a Service.
        """
        change = _Change()
        before_values: dict[ElementKey, str | None] = {}
        for key, new in updates.items():
            old = self._rules.get(key, NO_RULES)
            _add_differences(change, old, new)
            for element in {**old.elements, **new.elements}:
                before_values.setdefault(element, self._effective_value(element))
                self._set_claim(element, key, new.elements.get(element))
            if new == NO_RULES:
                self._rules.pop(key, None)
            else:
                self._rules[key] = new
        for element, before in before_values.items():
            after = self._effective_value(element)
            if before != after:
                if before is not None:
                    change.removed[element] = before
                if after is not None:
                    change.added[element] = after
        return _text(_statements(change))

    def full_transaction(self, clients: AffinityClients = NO_CLIENTS) -> str:
        """Return the transaction that replaces the table.

        ``clients``: the session affinity of the existing table, which is kept for sets that exist
        in the new one.
        """
        return _empty_table(self.addresses) + _text(self._full_statements(clients))

    def split_transactions(self, clients: AffinityClients = NO_CLIENTS) -> list[str]:
        """Return the same as several transactions, for a kernel that rejects one of that size.

        Until the last one no packet is rejected.
        """
        transactions = nft.split_transactions(
            [f"{_empty_table(self.addresses)}{DROP_UNKNOWN}", *self._full_statements(clients)]
        )
        return [*transactions, _text([REJECT_UNKNOWN])]

    def _full_statements(self, clients: AffinityClients) -> list[str]:
        """Return the statements that fill an empty table."""
        change = _Change()
        for each in self._rules.values():
            _add_differences(change, NO_RULES, each)
        for element in self._claims:
            value = self._effective_value(element)
            assert value is not None
            change.added[element] = value
        clients_kept = {
            ElementKey(name, f"{client} expires {seconds}s"): ""
            for name in change.new_sets
            for client, seconds in clients.get(name, {}).items()
        }
        return [*_statements(change), *_elements("add", clients_kept)]

    def _set_claim(self, element: ElementKey, key: Key, claim: Claim | None) -> None:
        claims = self._claims.setdefault(element, {})
        claims.pop(key, None)
        if claim is not None:
            claims[key] = claim
        elif not claims:
            del self._claims[element]

    def _effective_value(self, element: ElementKey) -> str | None:
        """Return the value of an element: of equal claims that of the first Service by name."""
        claims = self._claims.get(element)
        if not claims:
            return None
        return min((claim.rank, key, claim.value) for key, claim in claims.items())[2]


def _add_differences(change: _Change, old: ServiceRules, new: ServiceRules) -> None:
    for name, declaration in new.sets.items():
        if name not in old.sets:
            change.new_sets[name] = declaration
    for name, body in new.chains.items():
        if name not in old.chains:
            change.new_chains.append(name)
        if old.chains.get(name) != body:
            change.bodies[name] = body
    change.old_chains += [name for name in old.chains if name not in new.chains]
    change.old_sets += [name for name in old.sets if name not in new.sets]


def _statements(change: _Change) -> list[str]:
    lines = [f"add set {TABLE} {name} {{ {text} }}" for name, text in change.new_sets.items()]
    lines += [f"add chain {TABLE} {name}" for name in change.new_chains]
    new_chains = set(change.new_chains)
    for name, body in change.bodies.items():
        if name not in new_chains:
            lines.append(f"flush chain {TABLE} {name}")
        lines += [f"add rule {TABLE} {name} {rule}" for rule in body]
    lines += _elements("delete", change.removed)
    lines += _elements("add", change.added)
    lines += [f"flush chain {TABLE} {name}" for name in change.old_chains]
    lines += [f"delete chain {TABLE} {name}" for name in change.old_chains]
    lines += [f"delete set {TABLE} {name}" for name in change.old_sets]
    return lines


def _text(statements: Iterable[str]) -> str:
    return "".join(f"{statement}\n" for statement in statements)


def _elements(verb: str, elements: Mapping[ElementKey, str]) -> Iterable[str]:
    by_map: dict[str, list[str]] = {}
    for element, value in elements.items():
        by_map.setdefault(element.map, []).append(
            f"{element.key} : {value}" if value else element.key
        )
    for name, entries in by_map.items():
        for start in range(0, len(entries), _MAX_ELEMENTS_PER_STATEMENT):
            text = ",\n".join(
                f"\t{each}" for each in entries[start : start + _MAX_ELEMENTS_PER_STATEMENT]
            )
            yield f"{verb} element {TABLE} {name} {{\n{text}\n}}"


def _empty_table(addresses: ClusterAddresses) -> str:
    """Return the transaction that creates an empty table, replacing an existing one."""
    maps = "\n".join(f"\t{text}" for text in _MAPS.values())
    chains = "\n".join(
        f"\tchain {name} {{\n{_indented(rules)}\n\t}}" for name, rules in _chains(addresses).items()
    )
    return f"add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{maps}\n{chains}\n}}\n"


def _indented(rules: Iterable[str]) -> str:
    return "\n".join(f"\t\t{rule}" for rule in rules)


def _chains(addresses: ClusterAddresses) -> Mapping[str, Sequence[str]]:
    port = "meta l4proto . th dport vmap"
    dispatch = [f"ip daddr . {port} @services4", f"ip6 daddr . {port} @services6"]
    dispatch += [
        f"{_family(each)} daddr {each} {port} @nodeports{each.version}"
        for each in addresses.nodes
        if not each.is_loopback
    ]
    dispatch += [
        # Packets to unused Service addresses must not leave the cluster.
        *(f"{_family(each)} daddr {each} goto refuse" for each in addresses.services),
        f"ip daddr != 127.0.0.0/8 fib daddr type local {port} @nodeports4",
        f"ip6 daddr != ::1 fib daddr type local {port} @nodeports6",
    ]
    return {
        "refuse": _REJECT_RULES,
        "dispatch": dispatch,
        "prerouting": [
            "type nat hook prerouting priority -100; policy accept;",
            "jump dispatch",
        ],
        "output": [
            "type nat hook output priority -100; policy accept;",
            "jump dispatch",
        ],
        # Hairpin: an endpoint that connects to itself through its Service needs replies by way of
        # us.
        "postrouting": [
            "type nat hook postrouting priority 100; policy accept;",
            "ct status dnat ip saddr . ip daddr @hairpin4 masquerade",
            "ct status dnat ip6 saddr . ip6 daddr @hairpin6 masquerade",
        ],
        # Connections to pods that are gone are rejected.
        "gone": [
            "type filter hook prerouting priority -90; policy accept;",
            *(
                f"{_family(each)} daddr {each} fib daddr type != local "
                "fib daddr oif missing goto refuse"
                for each in addresses.pods
            ),
        ],
    }


def _family(address: IPv4Network | IPv6Network | IPv4Address | IPv6Address) -> str:
    return "ip" if address.version == 4 else "ip6"
