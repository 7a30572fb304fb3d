"""What of the policies is in the packet filter, and what has to be said when something changes.

Chains and sets of a policy are named after its content: they are made and removed as wholes.  What
pods come to are elements, and only what differs is written.  Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from corral.api.object import Key
from corral.node.network.netlink import Network
from corral.node.network_policy.nft_rules import (
    TABLE,
    chain_of,
    chain_rules,
    frame,
    gathered,
    set_of,
    sets,
)
from corral.node.network_policy.parsed_policy import EGRESS, INGRESS, Member, Policy

_MOST_ELEMENTS = 500
"""Of one statement."""
Labels = Mapping[str, str]
T = TypeVar("T")
V = TypeVar("V")


class Set(NamedTuple):
    """A set, and how it is declared."""

    name: str
    declaration: str


class Chain(NamedTuple):
    """A chain, and its rules."""

    name: str
    rules: tuple[str, ...]


class Element(NamedTuple):
    """A place in a set or map; ``value`` is the verdict that a map has there."""

    set: str
    key: str
    value: str = ""


Item = Set | Chain | Element


class Table:
    """The policies, and the pods that they are about, as far as they were told.

    Each policy and each pod has a share of items.  An item is there as long as somebody's share
    has it.
    """

    def __init__(self, pods: Sequence[Network]) -> None:
        """``pods`` are the ranges of all pods' addresses."""
        self._ranges = pods
        self._versions = sorted({each.version for each in pods})
        self._policies: dict[Key, Policy] = {}
        self._namespaces: dict[str, Labels] = {}
        self._members: dict[Key, Member] = {}
        self._claims: dict[str, list[Key]] = {}
        """By address: the pods that were told to have it; it is the last one's."""
        self._shares: dict[tuple[type, Key], frozenset[Item]] = {}
        self._counts = Counter[Item]()

    def change(
        self,
        *,
        policies: Mapping[Key, Policy | None] | None = None,
        namespaces: Mapping[str, Labels | None] | None = None,
        members: Mapping[Key, Member | None] | None = None,
    ) -> str:
        """Take note of what is new, or gone (None); answers the transaction, empty if none."""
        judged: Collection[Key] = self._take(members or {})
        _update(self._namespaces, namespaces or {})
        _update(self._policies, policies or {})
        if policies or namespaces:
            judged = {*judged, *self._members}
        before: dict[Item, int] = {}
        for key in policies or ():
            policy = self._policies.get(key)
            share = frozenset(self._of_policy(policy)) if policy else frozenset[Item]()
            self._share((Policy, key), share, before)
        for key in judged:
            member = self._members.get(key)
            share = frozenset(self._of_member(key, member)) if member else frozenset[Item]()
            self._share((Member, key), share, before)
        added = [item for item, count in before.items() if not count and self._counts[item]]
        removed = [item for item, count in before.items() if count and not self._counts[item]]
        for item in removed:
            del self._counts[item]
        return transaction(added, removed)

    def whole(self) -> str:
        """The transaction that puts everything in the place of whatever is there."""
        return frame(self._ranges) + transaction(self._counts, ())

    def _take(self, members: Mapping[Key, Member | None]) -> set[Key]:
        """Note who has which address; answers the pods that are to be judged anew."""
        judged = set(members)
        for key, member in members.items():
            old = self._members.pop(key, None)
            before = set(old.addresses) if old else set()
            now = set(member.addresses) if member else set()
            for address in before - now:
                claims = self._claims[address]
                claims.remove(key)
                judged.update(claims[-1:])
                if not claims:
                    del self._claims[address]
            for address in now - before:
                claims = self._claims.setdefault(address, [])
                judged.update(claims[-1:])
                claims.append(key)
            if member is not None:
                self._members[key] = member
        return judged

    def _share(
        self, holder: tuple[type, Key], share: frozenset[Item], before: dict[Item, int]
    ) -> None:
        """Give somebody another share; ``before`` keeps how often items were had at first."""
        old = self._shares.pop(holder, frozenset())
        if share:
            self._shares[holder] = share
        for items, difference in ((old - share, -1), (share - old, 1)):
            for item in items:
                before.setdefault(item, self._counts[item])
                self._counts[item] += difference

    def _of_policy(self, policy: Policy) -> Iterator[Item]:
        for name, declaration in sets(policy, self._versions).items():
            yield Set(name, declaration)
        for way in policy.rules:
            yield Chain(chain_of(policy, way), tuple(chain_rules(policy, way, self._versions)))

    def _of_member(self, key: Key, member: Member) -> Iterator[Item]:
        """What a pod is: under policies or not, and a peer to the pods of others."""
        mine = [
            (6 if ":" in address else 4, address)
            for address in member.addresses
            if self._claims[address][-1] == key
        ]
        for version, address in mine:
            yield Element(f"self{version}", f"{address} . {address}")
        for way in (EGRESS, INGRESS):
            selecting = [
                chain_of(policy, way)
                for policy in self._policies.values()
                if way in policy.rules and policy.selects(member)
            ]
            verdict = "accept"
            if selecting:
                name, lines = gathered(sorted(selecting), way)
                yield Chain(name, tuple(lines))
                verdict = f"jump {name}"
            for version, address in mine:
                yield Element(f"{way}{version}", address, verdict)
        for policy in self._policies.values():
            yield from self._as_peer(policy, member, mine)

    def _as_peer(
        self, policy: Policy, member: Member, mine: Iterable[tuple[int, str]]
    ) -> Iterator[Item]:
        """The places that a pod has in the sets of a policy."""
        for way, number, rule in policy.each():
            is_peer = any(
                peer.matches(policy.namespace, member, self._namespaces) for peer in rule.peers
            )
            ports = [(name, port) for name, port in member.ports if name in rule.names]
            for version, address in mine:
                if is_peer:
                    yield Element(set_of(policy, way, number, "pods", version), address)
                for name, port in ports:
                    place = f"{address} . {name.protocol} . {port}"
                    yield Element(set_of(policy, way, number, "ports", version), place)


def transaction(added: Iterable[Item], removed: Iterable[Item]) -> str:
    """The commands that add and remove items, in an order in which nothing refers to nothing."""
    new, old = _Sorted(added), _Sorted(removed)
    gone = {one.name for one in old.sets}
    lines = [f"add set {TABLE} {one.name} {{ {one.declaration} }}" for one in new.sets]
    lines += [f"add chain {TABLE} {one.name}" for one in new.chains]
    lines += [f"add rule {TABLE} {one.name} {rule}" for one in new.chains for rule in one.rules]
    lines += [
        f"delete element {TABLE} {name} {{ {elements} }}"
        for name, elements in old.elements()
        if name not in gone
    ]
    lines += [f"add element {TABLE} {name} {{ {elements} }}" for name, elements in new.elements()]
    lines += [f"flush chain {TABLE} {one.name}" for one in old.chains]
    lines += [f"delete chain {TABLE} {one.name}" for one in old.chains]
    lines += [f"delete set {TABLE} {one.name}" for one in old.sets]
    return "".join(f"{line}\n" for line in lines)


class _Sorted:
    """Items by what they are, each kind in an order that is always the same."""

    def __init__(self, items: Iterable[Item]) -> None:
        items = sorted(items)
        self.sets = [one for one in items if isinstance(one, Set)]
        self.chains = [one for one in items if isinstance(one, Chain)]
        self._elements: dict[str, list[str]] = {}
        for one in items:
            if isinstance(one, Element):
                text = f"{one.key} : {one.value}" if one.value else one.key
                self._elements.setdefault(one.set, []).append(text)

    def elements(self) -> Iterator[tuple[str, str]]:
        """Sets' names, and elements as text: of a large set in several parts."""
        for name, elements in self._elements.items():
            for start in range(0, len(elements), _MOST_ELEMENTS):
                yield name, ", ".join(elements[start : start + _MOST_ELEMENTS])


def _update(known: dict[T, V], news: Mapping[T, V | None]) -> None:
    for key, value in news.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
