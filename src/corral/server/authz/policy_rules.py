"""What a role allows: its rules, made ready to be asked (Kubernetes' RBAC)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from corral.api.object import Document
from corral.server.authz.attributes import Attributes

ANY: Final = "*"
_MOST_REMEMBERED = 1024
_MOST_SETS = 16
"""Sets of names in an answer that is remembered."""

_Names = frozenset[str] | None
"""Names of objects; None are all of them."""


class PolicyRule:
    """One rule of a role.  ``document`` is how the role tells it."""

    __slots__ = ("_groups", "_names", "_prefixes", "_urls", "_verbs", "document", "resources")

    def __init__(self, document: Document) -> None:
        self.document = document
        self._verbs = frozenset(document.get("verbs") or ())
        self._groups = frozenset(document.get("apiGroups") or ())
        self.resources = frozenset(document.get("resources") or ())
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
        known = self.resources
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

    __slots__ = ("_about", "_known", "rules")

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._about: dict[str, list[PolicyRule]] | None = None
        """By the resources that rules name: made once somebody asks."""
        self._known: dict[tuple[str, str, str, str], Objects] = {}

    def allow(self, wish: Attributes) -> bool:
        if wish.path:
            return any(rule.allows_path(wish.verb, wish.path) for rule in self.rules)
        return self.objects(*wish[1:5]).has(wish.name)

    def objects(self, verb: str, group: str, resource: str, subresource: str) -> "Objects":
        """The objects with which something may be done."""
        asked = (verb, group, resource, subresource)
        known = self._known.get(asked)
        if known is not None:
            return known
        found = self._found(*asked)
        if len(found.names or ()) <= _MOST_SETS:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[asked] = found
        return found

    def _found(self, verb: str, group: str, resource: str, subresource: str) -> "Objects":
        found: list[frozenset[str]] = []
        for rule in self.about(resource, subresource):
            names = rule.names(verb, group, resource, subresource)
            if names is None:
                return _ALL
            if names:
                found.append(names)
        return Objects(tuple(found))

    def about(self, resource: str, subresource: str) -> list[PolicyRule]:
        """The rules that name a resource or all: others have no say in what is done with it."""
        if self._about is None:
            self._about = {}
            for rule in self.rules:
                for each in rule.resources:
                    self._about.setdefault(each, []).append(rule)
        keys = {ANY, resource}
        if subresource:
            keys = {ANY, f"{resource}/{subresource}", f"*/{subresource}"}
        found: list[PolicyRule] = []
        for key in keys:
            found += self._about.get(key, ())
        return found


class Objects(NamedTuple):
    """Objects by their names, in as many sets as there are rules; None are all of them.

    The sets are the rules' own: each rule may name thousands, and many questions be about them.
    """

    names: tuple[frozenset[str], ...] | None

    def has(self, name: str | None) -> bool:
        """Whether one is among them; None stands for all."""
        return self.names is None or any(name in each for each in self.names)


_ALL: Final = Objects(None)


def rules_of(role: Mapping[str, object]) -> tuple[PolicyRule, ...]:
    """The rules of a role's document; those that nobody can read are left out."""
    rules = role.get("rules")
    return tuple(map(PolicyRule, filter(_is_rule, rules))) if isinstance(rules, list) else ()


def _is_rule(rule: object) -> bool:
    return isinstance(rule, Mapping) and all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        for texts in rule.values()
        if texts is not None
    )
