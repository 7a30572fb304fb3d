"""Matching of operations with the rules and selectors of webhooks and policies.  Pure.

Rules match operations and resources; selectors match labels of the object and of its namespace.
A rule with one version of a resource also matches requests in other versions, unless matchPolicy is
``Exact``: the objects are then converted to the rule's version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.kind import Kind, Version, at
from corral.api.object import Document
from corral.api.selectors import LabelSelector, label_selector
from corral.server.admission.dynamic.attributes import AdmissionAttributes
from corral.server.request.call import Call

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations on resources; "*" matches all."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str
    names: frozenset[str]

    def covers(self, attr: AdmissionAttributes, version: str) -> bool:
        """Return whether it matches an operation, if that were requested in the given version."""
        kind = attr.call.kind
        return (
            _contains(self.operations, attr.operation)
            and _contains(self.groups, kind.group)
            and _contains(self.versions, version)
            and any(self._names(each, kind, attr.call.subresource) for each in self.resources)
            and (self.scope == "*" or (self.scope == "Namespaced") == kind.namespaced)
            and (not self.names or attr.name in self.names)
        )

    @staticmethod
    def _names(resource: tuple[str, str], kind: Kind, subresource: str) -> bool:
        plural, subresource_name = resource
        return plural in ("*", kind.plural) and subresource_name in ("*", subresource)


def _contains(names: frozenset[str], name: str) -> bool:
    return "*" in names or name in names


def rules_of(documents: Iterable[Document] | None) -> tuple[Rule, ...]:
    """Parse RuleWithOperations documents."""
    return tuple(
        Rule(
            operations=frozenset(each.get("operations") or ()),
            groups=frozenset(each.get("apiGroups") or ()),
            versions=frozenset(each.get("apiVersions") or ()),
            resources=tuple(_split(name) for name in each.get("resources") or ()),
            scope=each.get("scope") or "*",
            names=frozenset(each.get("resourceNames") or ()),
        )
        for each in documents or ()
    )


def _split(resource: str) -> tuple[str, str]:
    resource_name, _, subresource_name = resource.partition("/")
    return resource_name, subresource_name


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules and selectors of a webhook, policy or binding."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    exact: bool
    matches_all: bool
    """True if it matches all that is not excluded: a binding without rules."""

    @classmethod
    def of(
        cls, document: Document, rules: str, excluded: str = "", *, needs_rules: bool = True
    ) -> "Selection":
        """Parse the fields of a document; ``rules`` and ``excluded`` are names of its fields."""
        return cls(
            rules=rules_of(document.get(rules)),
            excluded=rules_of(document.get(excluded)),
            namespaces=label_selector(document.get("namespaceSelector") or {}),
            objects=label_selector(document.get("objectSelector") or {}),
            exact=document.get("matchPolicy") == "Exact",
            matches_all=not needs_rules and not document.get(rules),
        )

    def matches(self, attr: AdmissionAttributes, namespace: Labels | None) -> Version | None:
        """Return the version in which to review an operation; None if it does not match.

        ``namespace`` are the labels of the object's namespace, if it is namespaced.
        """
        if not self._selects(attr, namespace):
            return None
        requested = attr.call.version
        if self._covers(self.excluded, attr, requested) is not None:
            return None
        return requested if self.matches_all else self._covers(self.rules, attr, requested)

    def _covers(
        self, rules: Sequence[Rule], attr: AdmissionAttributes, requested: Version
    ) -> Version | None:
        others = () if self.exact else attr.call.kind.versions
        for version in (requested, *others):
            if any(rule.covers(attr, version.name) for rule in rules):
                return version
        return None

    def _selects(self, attr: AdmissionAttributes, namespace: Labels | None) -> bool:
        if namespace is not None and not self.namespaces.matches(namespace):
            return False
        if not self.objects:
            return True
        shown = (each for each in (attr.document, attr.old) if each is not None)
        return any(self.objects.matches(_labels(each)) for each in shown)


def _labels(document: Document) -> Labels:
    labels: Any = at(document, "metadata", "labels")
    return labels or {}


def is_exempt(call: Call, group: str) -> bool:
    """Return whether a call is exempt: else a webhook that denies all could not be removed."""
    return call.kind.group == group
