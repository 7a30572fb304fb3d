"""Which acts a webhook or a policy is about.  Pure.

Rules name operations and resources; selectors look at labels of the object and of its namespace.
A rule that names one version of a resource is also about the same objects in other versions, unless
it says ``Exact``: its webhook sees them in the version that it named (Kubernetes' matchPolicy).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.kind import Kind, Version, at
from corral.api.object import Document
from corral.api.selectors import LabelSelector, label_selector
from corral.server.admission.dynamic.attributes import Act
from corral.server.request.call import Call

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations on resources; a star stands for all of them."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str
    names: frozenset[str]

    def covers(self, act: Act, version: str) -> bool:
        """Whether it is about an act, were that asked of the named version of its kind."""
        kind = act.call.kind
        return (
            _has(self.operations, act.operation)
            and _has(self.groups, kind.group)
            and _has(self.versions, version)
            and any(self._names(each, kind, act.call.subresource) for each in self.resources)
            and (self.scope == "*" or (self.scope == "Namespaced") == kind.namespaced)
            and (not self.names or act.name in self.names)
        )

    @staticmethod
    def _names(resource: tuple[str, str], kind: Kind, subresource: str) -> bool:
        plural, below = resource
        return plural in ("*", kind.plural) and below in ("*", subresource)


def _has(names: frozenset[str], name: str) -> bool:
    return "*" in names or name in names


def rules_of(documents: Iterable[Document] | None) -> tuple[Rule, ...]:
    """The rules that documents of RuleWithOperations are."""
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
    above, _, below = resource.partition("/")
    return above, below


@dataclass(frozen=True, slots=True)
class Selection:
    """What somebody wants to have a say in."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    exact: bool
    is_whole: bool
    """Whether it wants everything that is not excluded: it has no rules, and needs none."""

    @classmethod
    def of(
        cls, document: Document, rules: str, excluded: str = "", *, needs_rules: bool = True
    ) -> "Selection":
        """The selection that a document has in its fields; ``rules`` is where its rules are."""
        return cls(
            rules=rules_of(document.get(rules)),
            excluded=rules_of(document.get(excluded)),
            namespaces=label_selector(document.get("namespaceSelector") or {}),
            objects=label_selector(document.get("objectSelector") or {}),
            exact=document.get("matchPolicy") == "Exact",
            is_whole=not needs_rules and not document.get(rules),
        )

    def matches(self, act: Act, namespace: Labels | None) -> Version | None:
        """The version in which an act is to be seen; None where it is not wanted at all.

        ``namespace`` are the labels of the act's namespace, if it is in one.
        """
        if not self._selects(act, namespace):
            return None
        asked = act.call.version
        if self._covers(self.excluded, act, asked) is not None:
            return None
        return asked if self.is_whole else self._covers(self.rules, act, asked)

    def _covers(self, rules: Sequence[Rule], act: Act, asked: Version) -> Version | None:
        others = () if self.exact else act.call.kind.versions
        for version in (asked, *others):
            if any(rule.covers(act, version.name) for rule in rules):
                return version
        return None

    def _selects(self, act: Act, namespace: Labels | None) -> bool:
        if namespace is not None and not self.namespaces.matches(namespace):
            return False
        if not self.objects:
            return True
        shown = (each for each in (act.document, act.old) if each is not None)
        return any(self.objects.matches(_labels(each)) for each in shown)


def _labels(document: Document) -> Labels:
    labels: Any = at(document, "metadata", "labels")
    return labels or {}


def is_exempt(call: Call, group: str) -> bool:
    """Whether nobody is asked: else who refuses everything could not be removed any more."""
    return call.kind.group == group
