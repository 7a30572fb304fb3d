"""What a role allows: its rules, made ready to be asked (Kubernetes' RBAC)."""

from collections.abc import Iterable, Mapping
from typing import Final

from corral.api.object import Document
from corral.server.authz.attributes import Attributes

ANY: Final = "*"
_MOST_REMEMBERED = 1024

_Names = frozenset[str] | None
"""Names of objects; None are all of them."""


class PolicyRule:
    """One rule of a role.  ``document`` is how the role tells it."""

    __slots__ = ("_groups", "_names", "_prefixes", "_resources", "_urls", "_verbs", "document")

    def __init__(self, document: Document) -> None:
        self.document = document
        self._verbs = frozenset(document.get("verbs") or ())
        self._groups = frozenset(document.get("apiGroups") or ())
        self._resources = frozenset(document.get("resources") or ())
        self._names = frozenset(document.get("resourceNames") or ())
        urls = document.get("nonResourceURLs") or ()
        self._urls = frozenset(urls)
        self._prefixes = tuple(url.rstrip(ANY) for url in urls if url.endswith(ANY))

    def names(self, verb: str, group: str, resource: str, subresource: str) -> _Names:
        """The objects with which this may be done: none, some or all."""
        if verb not in self._verbs and ANY not in self._verbs:
            return frozenset()
        if group not in self._groups and ANY not in self._groups:
            return frozenset()
        known = self._resources
        if ANY not in known:
            if not subresource:
                if resource not in known:
                    return frozenset()
            elif f"{resource}/{subresource}" not in known and f"*/{subresource}" not in known:
                return frozenset()
        return self._names or None

    def allows_path(self, verb: str, path: str) -> bool:
        """Whether a request may go to an address that is none of objects."""
        if verb not in self._verbs and ANY not in self._verbs:
            return False
        return path in self._urls or path.startswith(self._prefixes)

    def allows(self, wish: Attributes) -> bool:
        if wish.path:
            return self.allows_path(wish.verb, wish.path)
        names = self.names(wish.verb, wish.group, wish.resource, wish.subresource)
        return names is None or wish.name in names


class Rules:
    """All rules that hold for somebody in some place, together.

    What they said is remembered: the same few questions are asked again and again.
    """

    __slots__ = ("_known", "rules")

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._known: dict[tuple[str, str, str, str], _Names] = {}

    def allow(self, wish: Attributes) -> bool:
        if wish.path:
            return any(rule.allows_path(wish.verb, wish.path) for rule in self.rules)
        names = self.names(*wish[1:5])
        return names is None or wish.name in names

    def names(self, verb: str, group: str, resource: str, subresource: str) -> _Names:
        """The objects with which something may be done."""
        asked = (verb, group, resource, subresource)
        if asked in self._known:
            return self._known[asked]
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        names = self._known[asked] = self._united(*asked)
        return names

    def _united(self, verb: str, group: str, resource: str, subresource: str) -> _Names:
        found: set[str] = set()
        for rule in self.rules:
            names = rule.names(verb, group, resource, subresource)
            if names is None:
                return None
            found |= names
        return frozenset(found)


def rules_of(role: Mapping[str, object]) -> tuple[PolicyRule, ...]:
    """The rules of a role's document."""
    rules = role.get("rules")
    return tuple(map(PolicyRule, rules)) if isinstance(rules, list) else ()
