"""The content of the policy table, and the transaction for each change.  No I/O.

Names of a policy's chains and sets include a digest of its content, so they are only added and
removed, never changed.  Pods are elements, of which only the differences are written.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from corral.api.object import Key
from corral.node.network.netlink import Network
from corral.node.network_policy.nft_rules import (
    TABLE,
    chain_name,
    chain_rules,
    empty_table,
    pod_chain,
    set_name,
    sets,
)
from corral.node.network_policy.parsed_policy import EGRESS, INGRESS, PodInfo, Policy

_MAX_ELEMENTS = 500
"""Limit of elements in one statement."""
Labels = Mapping[str, str]
T = TypeVar("T")
V = TypeVar("V")


class Set(NamedTuple):
    """A set and its declaration."""

    name: str
    declaration: str


class Chain(NamedTuple):
    """A chain and its rules."""

    name: str
    rules: tuple[str, ...]


class Element(NamedTuple):
    """An element of a set or map; ``value`` is the verdict in a map."""

    set: str
    key: str
    value: str = ""


Item = Set | Chain | Element


class Table:
    """The policies and pods, and the items of the table that follow from them.

    Each policy and each pod has a set of items.  An item exists as long as one of these sets has
    it.
    """

    def __init__(self, pods: Sequence[Network]) -> None:
        """Create an empty table; ``pods`` are the pod CIDRs."""
        self._ranges = pods
        self._versions = sorted({each.version for each in pods})
        self._policies: dict[Key, Policy] = {}
        self._namespaces: dict[str, Labels] = {}
        self._pod_infos: dict[Key, PodInfo] = {}
        self._address_owners: dict[str, list[Key]] = {}
        """By address: the pods that report it; it belongs to the last one."""
        self._items: dict[tuple[type, Key], frozenset[Item]] = {}
        self._counts = Counter[Item]()

    def change(
        self,
        *,
        policies: Mapping[Key, Policy | None] | None = None,
        namespaces: Mapping[str, Labels | None] | None = None,
        pod_infos: Mapping[Key, PodInfo | None] | None = None,
    ) -> str:
        """Apply changes, None for deletions; return the transaction, empty if nothing changes."""
        affected: Collection[Key] = self._update_addresses(pod_infos or {})
        _update(self._namespaces, namespaces or {})
        _update(self._policies, policies or {})
        if policies or namespaces:
            affected = {*affected, *self._pod_infos}
        counts_before: dict[Item, int] = {}
        for key in policies or ():
            policy = self._policies.get(key)
            items_ = frozenset(self._policy_items(policy)) if policy else frozenset[Item]()
            self._set_items((Policy, key), items_, counts_before)
        for key in affected:
            pod_info = self._pod_infos.get(key)
            items_ = frozenset(self._pod_items(key, pod_info)) if pod_info else frozenset[Item]()
            self._set_items((PodInfo, key), items_, counts_before)
        added = [item for item, count in counts_before.items() if not count and self._counts[item]]
        removed = [
            item for item, count in counts_before.items() if count and not self._counts[item]
        ]
        for item in removed:
            del self._counts[item]
        return transaction(added, removed)

    def full_transaction(self) -> str:
        """Return the transaction that replaces the table."""
        return empty_table(self._ranges) + transaction(self._counts, ())

    def _update_addresses(self, pod_infos: Mapping[Key, PodInfo | None]) -> set[Key]:
        """Update the owners of addresses; return the pods to evaluate again."""
        affected = set(pod_infos)
        for key, pod_info in pod_infos.items():
            old = self._pod_infos.pop(key, None)
            counts_before = set(old.addresses) if old else set()
            now = set(pod_info.addresses) if pod_info else set()
            for address in counts_before - now:
                owners = self._address_owners[address]
                owners.remove(key)
                affected.update(owners[-1:])
                if not owners:
                    del self._address_owners[address]
            for address in now - counts_before:
                owners = self._address_owners.setdefault(address, [])
                affected.update(owners[-1:])
                owners.append(key)
            if pod_info is not None:
                self._pod_infos[key] = pod_info
        return affected

    def _set_items(
        self, owner: tuple[type, Key], items_: frozenset[Item], counts_before: dict[Item, int]
    ) -> None:
        """Set the items of an owner; ``counts_before`` records the previous counts."""
        old = self._items.pop(owner, frozenset())
        if items_:
            self._items[owner] = items_
        for items, difference in ((old - items_, -1), (items_ - old, 1)):
            for item in items:
                counts_before.setdefault(item, self._counts[item])
                self._counts[item] += difference

    def _policy_items(self, policy: Policy) -> Iterator[Item]:
        for name, declaration in sets(policy, self._versions).items():
            yield Set(name, declaration)
        for direction in policy.rules:
            yield Chain(
                chain_name(policy, direction), tuple(chain_rules(policy, direction, self._versions))
            )

    def _pod_items(self, key: Key, pod_info: PodInfo) -> Iterator[Item]:
        """Return a pod's items: its policies' verdicts, and its elements in the sets of peers."""
        own_addresses = [
            (6 if ":" in address else 4, address)
            for address in pod_info.addresses
            if self._address_owners[address][-1] == key
        ]
        for version, address in own_addresses:
            yield Element(f"self{version}", f"{address} . {address}")
        for direction in (EGRESS, INGRESS):
            selecting = [
                chain_name(policy, direction)
                for policy in self._policies.values()
                if direction in policy.rules and policy.selects(pod_info)
            ]
            verdict = "accept"
            if selecting:
                name, lines = pod_chain(sorted(selecting), direction)
                yield Chain(name, tuple(lines))
                verdict = f"jump {name}"
            for version, address in own_addresses:
                yield Element(f"{direction}{version}", address, verdict)
        for policy in self._policies.values():
            yield from self._peer_elements(policy, pod_info, own_addresses)

    def _peer_elements(
        self, policy: Policy, pod_info: PodInfo, own_addresses: Iterable[tuple[int, str]]
    ) -> Iterator[Item]:
        """Return the elements of a pod in the sets of a policy."""
        for direction, number, rule in policy.each():
            is_peer = any(
                peer.matches(policy.namespace, pod_info, self._namespaces) for peer in rule.peers
            )
            ports = [(name, port) for name, port in pod_info.ports if name in rule.port_names]
            for version, address in own_addresses:
                if is_peer:
                    yield Element(set_name(policy, direction, number, "pods", version), address)
                for name, port in ports:
                    place = f"{address} . {name.protocol} . {port}"
                    yield Element(set_name(policy, direction, number, "ports", version), place)


def transaction(added: Iterable[Item], removed: Iterable[Item]) -> str:
    """Return the statements that add and remove items, in the order of their references."""
    new, old = _SortedItems(added), _SortedItems(removed)
    removed_sets = {each.name for each in old.sets}
    lines = [f"add set {TABLE} {each.name} {{ {each.declaration} }}" for each in new.sets]
    lines += [f"add chain {TABLE} {each.name}" for each in new.chains]
    lines += [f"add rule {TABLE} {each.name} {rule}" for each in new.chains for rule in each.rules]
    lines += [
        f"delete element {TABLE} {name} {{ {elements} }}"
        for name, elements in old.elements()
        if name not in removed_sets
    ]
    lines += [f"add element {TABLE} {name} {{ {elements} }}" for name, elements in new.elements()]
    lines += [f"flush chain {TABLE} {each.name}" for each in old.chains]
    lines += [f"delete chain {TABLE} {each.name}" for each in old.chains]
    lines += [f"delete set {TABLE} {each.name}" for each in old.sets]
    return "".join(f"{line}\n" for line in lines)


class _SortedItems:
    """Items by type, in a deterministic order."""

    def __init__(self, items: Iterable[Item]) -> None:
        items = sorted(items)
        self.sets = [each for each in items if isinstance(each, Set)]
        self.chains = [each for each in items if isinstance(each, Chain)]
        self._elements: dict[str, list[str]] = {}
        for each in items:
            if isinstance(each, Element):
                text = f"{each.key} : {each.value}" if each.value else each.key
                self._elements.setdefault(each.set, []).append(text)

    def elements(self) -> Iterator[tuple[str, str]]:
        """Return the elements of each set as text, in parts of limited size."""
        for name, elements in self._elements.items():
            for start in range(0, len(elements), _MAX_ELEMENTS):
                yield name, ", ".join(elements[start : start + _MAX_ELEMENTS])


def _update(current: dict[T, V], changes: Mapping[T, V | None]) -> None:
    for key, value in changes.items():
        if value is None:
            current.pop(key, None)
        else:
            current[key] = value
