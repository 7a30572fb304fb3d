"""Evaluation of RBAC rules."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from corral.api.object import Document
from corral.server.authz.attributes import Attributes

ANY: Final = "*"
_MAX_CACHED = 1024
_MAX_CACHED_SETS = 16
"""Results with more sets of names are not cached."""

_Names = frozenset[str] | None
"""Names of objects; None stands for all."""


class PolicyRule:
    """One parsed rule of a role; ``document`` is the original."""

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
        """Return the names of objects for which the rule grants a verb: none, some or all."""
        if verb not in self._verbs and ANY not in self._verbs:
            return frozenset()
        if group not in self._groups and ANY not in self._groups:
            return frozenset()
        cached = self.resources
        if ANY not in cached:
            if not subresource:
                if resource not in cached:
                    return frozenset()
            elif f"{resource}/{subresource}" not in cached and f"*/{subresource}" not in cached:
                return frozenset()
        return self._names or None

    def allows_path(self, verb: str, path: str) -> bool:
        """Return whether the rule grants a verb on a non-resource URL."""
        if verb not in self._verbs and ANY not in self._verbs:
            return False
        return path in self._urls or path.startswith(self._prefixes)

    def allows(self, attributes: Attributes) -> bool:
        if attributes.path:
            return self.allows_path(attributes.verb, attributes.path)
        names = self.names(
            attributes.verb, attributes.group, attributes.resource, attributes.subresource
        )
        return names is None or attributes.name in names


class Rules:
    """All rules of a user in a namespace.  Results are cached: the same few checks repeat."""

    __slots__ = ("_by_resource", "_cached", "rules")

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self.rules = tuple(rules)
        self._by_resource: dict[str, list[PolicyRule]] | None = None
        """Rules by resource; built on first use."""
        self._cached: dict[tuple[str, str, str, str], ObjectNames] = {}

    def allow(self, attributes: Attributes) -> bool:
        if attributes.path:
            return any(rule.allows_path(attributes.verb, attributes.path) for rule in self.rules)
        return self.object_names(*attributes[1:5]).has(attributes.name)

    def object_names(self, verb: str, group: str, resource: str, subresource: str) -> "ObjectNames":
        """Return the names of objects for which a verb is granted."""
        key = (verb, group, resource, subresource)
        cached = self._cached.get(key)
        if cached is not None:
            return cached
        matches = self._find(*key)
        if len(matches.names or ()) <= _MAX_CACHED_SETS:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            self._cached[key] = matches
        return matches

    def _find(self, verb: str, group: str, resource: str, subresource: str) -> "ObjectNames":
        matches: list[frozenset[str]] = []
        for rule in self.for_resource(resource, subresource):
            names = rule.names(verb, group, resource, subresource)
            if names is None:
                return _ALL_NAMES
            if names:
                matches.append(names)
        return ObjectNames(tuple(matches))

    def for_resource(self, resource: str, subresource: str) -> list[PolicyRule]:
        """Return the rules that name a resource, or all resources."""
        if self._by_resource is None:
            self._by_resource = {}
            for rule in self.rules:
                for each in rule.resources:
                    self._by_resource.setdefault(each, []).append(rule)
        lookup_keys = {ANY, resource}
        if subresource:
            lookup_keys = {ANY, f"{resource}/{subresource}", f"*/{subresource}"}
        matches: list[PolicyRule] = []
        for lookup_key in lookup_keys:
            matches += self._by_resource.get(lookup_key, ())
        return matches


class ObjectNames(NamedTuple):
    """Names of objects, a set per rule; None stands for all.

    The sets are shared with the rules, not merged: each may hold thousands of names.
    """

    names: tuple[frozenset[str], ...] | None

    def has(self, name: str | None) -> bool:
        """Return whether a name is included; None asks for all names."""
        return self.names is None or any(name in each for each in self.names)


_ALL_NAMES: Final = ObjectNames(None)


def rules_of(role: Mapping[str, object]) -> tuple[PolicyRule, ...]:
    """Parse the rules of a role; malformed ones are left out."""
    rules = role.get("rules")
    return tuple(map(PolicyRule, filter(_is_rule, rules))) if isinstance(rules, list) else ()


def _is_rule(rule: object) -> bool:
    return isinstance(rule, Mapping) and all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        for texts in rule.values()
        if texts is not None
    )
