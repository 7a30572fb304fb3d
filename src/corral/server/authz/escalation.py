"""Prevention of privilege escalation (Kubernetes' RBAC escalation check).

To write a role, a user needs all rights in it, or the verb ``escalate`` on it; to write a binding,
all rights of the bound role, or ``bind`` on that role.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

from corral.api.errors import Forbidden, NotFound
from corral.api.kinds.auth.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    GROUP,
    ROLE,
    ROLE_BINDING,
)
from corral.api.object import Document, Key
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer
from corral.server.authz.policy_rules import Rules
from corral.server.request.call import Call, Guard, forbidden, storage

MAX_RIGHTS: Final = 10_000
"""Roles with more single rights (a verb on a resource) are rejected."""
MAX_COMPARISONS: Final = 100_000
"""Comparisons of a single right with a rule of the user: they block the event loop."""
MAX_LISTED: Final = 100

_EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_DELETION_FIELDS = ("finalizers", "ownerReferences", "resourceVersion", "managedFields")
_SHOWN = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


class Escalation:
    """Checks users who write roles and bindings."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """Return the guards, by the resource name of the stored kind."""
        return {
            storage(ROLE): self._check_role,
            storage(CLUSTER_ROLE): self._check_role,
            storage(ROLE_BINDING): self._check_binding,
            storage(CLUSTER_ROLE_BINDING): self._check_binding,
        }

    def _check_role(self, call: Call, document: Document, old: Document | None) -> None:
        """Check the writer of a role.  Raises Forbidden."""
        escalate = Attributes(
            call.user, "escalate", GROUP, call.kind.plural, "", call.namespace, call.name
        )
        if _is_about_deletion_only(document, old) or self._is_allowed(call, escalate):
            return
        self._check_granted(call, document, document.get("rules") or ())
        aggregates = document.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and any(missing(self._granted(call), _EVERYTHING)):
            why = "must have cluster-admin privileges to use an aggregationRule"
            raise _rejected(call, document, why)

    def _check_binding(self, call: Call, document: Document, old: Document | None) -> None:
        """Check the writer of a binding.  Raises Forbidden, and NotFound for a missing role."""
        reference = document["roleRef"]
        kind, name = reference["kind"], reference["name"]
        plural = ROLE.plural if kind == ROLE.name else CLUSTER_ROLE.plural
        group = reference.get("apiGroup") or ""
        bind = Attributes(call.user, "bind", group, plural, "", call.namespace, name)
        if _is_about_deletion_only(document, old) or self._is_allowed(call, bind):
            return
        rules = self._authorizer.roles.of(kind, Key(call.namespace, name))
        if rules is None:
            raise NotFound(f'{kind.lower()}.{GROUP} "{name}" not found')
        self._check_granted(call, document, [rule.document for rule in rules])

    def _is_allowed(self, call: Call, attributes: Attributes) -> bool:
        return self._authorizer.allows(attributes, is_component=call.is_by_component)

    def _granted(self, call: Call) -> Rules:
        return self._authorizer.roles.rules(call.user, call.namespace)

    def _check_granted(self, call: Call, document: Document, rules: Iterable[Document]) -> None:
        rules = list(rules)
        if sum(map(_count, rules)) > MAX_RIGHTS:
            why = f"it holds more than {MAX_RIGHTS} single rights, too many to compare with yours"
            raise _rejected(call, document, why)
        try:
            missing_rights = list(missing(self._granted(call), rules))
        except _TooManyComparisons:
            why = "your rules and its are too many to compare: put yours together into fewer"
            raise _rejected(call, document, why) from None
        if not missing_rights:
            return
        lines_shown = sorted({_shown(rule) for rule in _merge_verbs(missing_rights)})
        more = (
            [f"and {len(lines_shown) - MAX_LISTED} more"] if len(lines_shown) > MAX_LISTED else []
        )
        groups = " ".join(f'"{group}"' for group in call.user.groups)
        lines = "\n".join([*lines_shown[:MAX_LISTED], *more])
        why = (
            f'user "{call.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions '
            f"not currently held:\n{lines}"
        )
        raise _rejected(call, document, why)


class _TooManyComparisons(Exception):
    """The comparison exceeds ``MAX_COMPARISONS``."""


def missing(granted: Rules, rules: Iterable[Document]) -> Iterator[Document]:
    """Yield the single rights that are not granted.  Raises _TooManyComparisons."""
    comparisons_left = MAX_COMPARISONS
    for rule in rules:
        for right in _split(rule):
            resource = _resource_of(right)
            comparisons_left -= 1 + len(
                granted.rules if resource is None else granted.for_resource(*resource)
            )
            if comparisons_left < 0:
                raise _TooManyComparisons
            if not _is_granted(granted, right, resource):
                yield right


def _resource_of(right: Document) -> tuple[str, str] | None:
    """Return the resource and subresource of a single right; None for a non-resource URL."""
    if "nonResourceURLs" in right:
        return None
    resource, _, subresource = right["resources"][0].partition("/")
    return resource, subresource


def _split(rule: Document) -> Iterator[Document]:
    """Split a rule into single rights."""
    verbs = rule.get("verbs") or ()
    for url, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield {"verbs": [verb], "nonResourceURLs": [url]}
    names: Iterable[Any] = rule.get("resourceNames") or (None,)
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    for group, resource, name, verb in product(groups, resources, names, verbs):
        right = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
        yield right if name is None else right | {"resourceNames": [name]}


def _count(rule: Document) -> int:
    """Return the number of single rights in a rule."""
    verbs, urls, groups, resources, names = (
        len(rule.get(field) or ())
        for field in ("verbs", "nonResourceURLs", "apiGroups", "resources", "resourceNames")
    )
    return verbs * (urls + groups * resources * max(names, 1))


def _is_granted(granted: Rules, right: Document, resource: tuple[str, str] | None) -> bool:
    (verb,) = right["verbs"]
    if resource is None:
        return any(rule.allows_path(verb, right["nonResourceURLs"][0]) for rule in granted.rules)
    objects = granted.object_names(verb, right["apiGroups"][0], *resource)
    return objects.has(right.get("resourceNames", [None])[0])


def _merge_verbs(rights: Iterable[Document]) -> Iterable[Document]:
    """Merge single rights on the same target into one rule with all verbs."""
    merged: dict[tuple[tuple[str, str], ...], Document] = {}
    for right in rights:
        target = tuple((field, each[0]) for field, each in right.items() if field != "verbs")
        rule = merged.setdefault(target, right | {"verbs": []})
        rule["verbs"] += [verb for verb in right["verbs"] if verb not in rule["verbs"]]
    return merged.values()


def _shown(rule: Document) -> str:
    parts = (
        f"{name}:[{' '.join(_quoted(each) for each in rule[field])}]"
        for name, field in _SHOWN
        if rule.get(field)
    )
    return "{" + ", ".join(parts) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_about_deletion_only(document: Document, old: Document | None) -> bool:
    """Return whether an update changes only fields that the garbage collector sets."""
    return old is not None and _without(document) == _without(old)


def _without(document: Document) -> Document:
    metadata = document["metadata"]
    remaining = {name: value for name, value in metadata.items() if name not in _DELETION_FIELDS}
    return document | {"metadata": remaining}


def _rejected(call: Call, document: Document, why: str) -> Forbidden:
    return forbidden(call.kind, document["metadata"].get("name", ""), why)
