"""The packet filter's table of Services: as a whole, and what changes from one state to the next.

A connection's first packet is looked up in a map (address, protocol, port), goes to the chain of
its Service, and is sent on to an endpoint that is drawn there; the kernel remembers which.  All
further packets are the kernel's business alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from corral.api.object import Key
from corral.node.network import nft
from corral.node.proxy.backends import Backend
from corral.node.proxy.service_rules import NO_PART, Claim, Door, Part, Slot, Surroundings
from corral.node.proxy.session_affinity import Remembered

TABLE = "inet corral_services"
PROBE = f"add chain {TABLE} dispatch\n"
"""A transaction that changes nothing, and fails where the table is not there."""

NOBODY: Remembered = {}
_MOST_ELEMENTS = 1000
_REFUSAL = ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")
SILENT = f"flush chain {TABLE} refuse\nadd rule {TABLE} refuse drop"
"""Statements after which nobody is refused: who is led nowhere is not answered, and asks again."""
REFUSING = "\n".join(
    [f"flush chain {TABLE} refuse", *(f"add rule {TABLE} refuse {rule}" for rule in _REFUSAL)]
)
"""Statements after which who is led nowhere is refused, as it is in a table that is complete."""

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
    """What differs, in the order in which it has to be said."""

    new_sets: dict[str, str] = field(default_factory=dict)
    new_chains: list[str] = field(default_factory=list)
    bodies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    removed: dict[Slot, str] = field(default_factory=dict)
    added: dict[Slot, str] = field(default_factory=dict)
    old_chains: list[str] = field(default_factory=list)
    old_sets: list[str] = field(default_factory=list)


class Rules:
    """The parts of all Services, as they are in the kernel once what was answered is applied."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self._parts: dict[Key, Part] = {}
        self._claims: dict[Slot, dict[Key, Claim]] = {}

    def part(self, key: Key) -> Part:
        """What a Service has now."""
        return self._parts.get(key, NO_PART)

    def answering(self) -> dict[Door, frozenset[Backend]]:
        """Every door, and who may answer there."""
        return {
            door: answering
            for each in self._parts.values()
            for door, answering in each.answering.items()
        }

    def change(self, parts: Mapping[Key, Part]) -> str:
        """Take the new parts of some Services; answers the transaction, empty if nothing changes.

        An empty part removes a Service.
        """
        change = _Change()
        touched: dict[Slot, str | None] = {}
        for key, new in parts.items():
            old = self._parts.get(key, NO_PART)
            _compare(change, old, new)
            for slot in {**old.elements, **new.elements}:
                touched.setdefault(slot, self._value(slot))
                self._claim(slot, key, new.elements.get(slot))
            if new == NO_PART:
                self._parts.pop(key, None)
            else:
                self._parts[key] = new
        for slot, before in touched.items():
            after = self._value(slot)
            if before != after:
                if before is not None:
                    change.removed[slot] = before
                if after is not None:
                    change.added[slot] = after
        return _text(_statements(change))

    def whole(self, clients: Remembered = NOBODY) -> str:
        """The transaction that puts everything in the place of whatever is there.

        ``clients`` were remembered there, and are still, by sets that are to be there again.
        """
        return _frame(self.surroundings) + _text(self._all(clients))

    def in_steps(self, clients: Remembered = NOBODY) -> list[str]:
        """The same in several transactions, for who may not write that much in one.

        Until the last one nobody is refused.
        """
        steps = nft.split_transactions(
            [f"{_frame(self.surroundings)}{SILENT}", *self._all(clients)]
        )
        return [*steps, _text([REFUSING])]

    def _all(self, clients: Remembered) -> list[str]:
        """The statements that fill a table with nothing in it."""
        change = _Change()
        for each in self._parts.values():
            _compare(change, NO_PART, each)
        for slot in self._claims:
            value = self._value(slot)
            assert value is not None
            change.added[slot] = value
        kept = {
            Slot(name, f"{client} expires {seconds}s"): ""
            for name in change.new_sets
            for client, seconds in clients.get(name, {}).items()
        }
        return [*_statements(change), *_elements("add", kept)]

    def _claim(self, slot: Slot, key: Key, claim: Claim | None) -> None:
        claims = self._claims.setdefault(slot, {})
        claims.pop(key, None)
        if claim is not None:
            claims[key] = claim
        elif not claims:
            del self._claims[slot]

    def _value(self, slot: Slot) -> str | None:
        """What stands in a place: of equal claims the one of the first Service by name."""
        claims = self._claims.get(slot)
        if not claims:
            return None
        return min((claim.rank, key, claim.value) for key, claim in claims.items())[2]


def _compare(change: _Change, old: Part, new: Part) -> None:
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
    fresh = set(change.new_chains)
    for name, body in change.bodies.items():
        if name not in fresh:
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


def _elements(verb: str, elements: Mapping[Slot, str]) -> Iterable[str]:
    by_map: dict[str, list[str]] = {}
    for slot, value in elements.items():
        by_map.setdefault(slot.map, []).append(f"{slot.key} : {value}" if value else slot.key)
    for name, listed in by_map.items():
        for start in range(0, len(listed), _MOST_ELEMENTS):
            text = ",\n".join(f"\t{each}" for each in listed[start : start + _MOST_ELEMENTS])
            yield f"{verb} element {TABLE} {name} {{\n{text}\n}}"


def _frame(surroundings: Surroundings) -> str:
    """The table without Services, in the place of any that is there."""
    maps = "\n".join(f"\t{text}" for text in _MAPS.values())
    chains = "\n".join(
        f"\tchain {name} {{\n{_indented(rules)}\n\t}}"
        for name, rules in _chains(surroundings).items()
    )
    return f"add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{maps}\n{chains}\n}}\n"


def _indented(rules: Iterable[str]) -> str:
    return "\n".join(f"\t\t{rule}" for rule in rules)


def _chains(surroundings: Surroundings) -> Mapping[str, Sequence[str]]:
    port = "meta l4proto . th dport vmap"
    dispatch = [f"ip daddr . {port} @services4", f"ip6 daddr . {port} @services6"]
    dispatch += [
        f"{_family(each)} daddr {each} {port} @nodeports{each.version}"
        for each in surroundings.nodes
        if not each.is_loopback
    ]
    dispatch += [
        # What no Service has is not sent to the outside.
        *(f"{_family(each)} daddr {each} goto refuse" for each in surroundings.services),
        f"ip daddr != 127.0.0.0/8 fib daddr type local {port} @nodeports4",
        f"ip6 daddr != ::1 fib daddr type local {port} @nodeports6",
    ]
    return {
        "refuse": _REFUSAL,
        "dispatch": dispatch,
        "prerouting": [
            "type nat hook prerouting priority -100; policy accept;",
            "jump dispatch",
        ],
        "output": [
            "type nat hook output priority -100; policy accept;",
            "jump dispatch",
        ],
        # What an endpoint sends to itself through its Service has to come back this way.
        "postrouting": [
            "type nat hook postrouting priority 100; policy accept;",
            "ct status dnat ip saddr . ip daddr @hairpin4 masquerade",
            "ct status dnat ip6 saddr . ip6 daddr @hairpin6 masquerade",
        ],
        # Whoever still talks to a pod that is gone is told so.
        "gone": [
            "type filter hook prerouting priority -90; policy accept;",
            *(
                f"{_family(each)} daddr {each} fib daddr type != local "
                "fib daddr oif missing goto refuse"
                for each in surroundings.pods
            ),
        ],
    }


def _family(address: IPv4Network | IPv6Network | IPv4Address | IPv6Address) -> str:
    return "ip" if address.version == 4 else "ip6"
