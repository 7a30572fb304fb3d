"""Nobody gives rights away that they do not have (Kubernetes' escalation check).

Who writes a role needs the rights that it holds, or the verb ``escalate`` on it; who writes a
binding those of the role that is bound, or ``bind`` on that role.
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

MOST_RIGHTS: Final = 10_000
"""Single rights that are looked at: of a role that holds more it is not known what it gives."""
MOST_COMPARED: Final = 100_000
"""Times that a single right is held against a rule of its giver: all others wait meanwhile."""
MOST_TOLD: Final = 100

_EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_OF_DELETION = ("finalizers", "ownerReferences", "resourceVersion", "managedFields")
_SHOWN = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


class Escalation:
    """Checks who writes roles and bindings."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """What checks each kind, by the name that it is stored under."""
        return {
            storage(ROLE): self._role,
            storage(CLUSTER_ROLE): self._role,
            storage(ROLE_BINDING): self._binding,
            storage(CLUSTER_ROLE_BINDING): self._binding,
        }

    def _role(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Forbidden."""
        escalate = Attributes(
            call.user, "escalate", GROUP, call.kind.plural, "", call.namespace, call.name
        )
        if _is_about_deletion_only(document, old) or self._may(call, escalate):
            return
        self._require(call, document, document.get("rules") or ())
        aggregates = document.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and any(missing(self._held(call), _EVERYTHING)):
            why = "must have cluster-admin privileges to use an aggregationRule"
            raise _refused(call, document, why)

    def _binding(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Forbidden, and NotFound for a role that is not there."""
        reference = document["roleRef"]
        kind, name = reference["kind"], reference["name"]
        plural = ROLE.plural if kind == ROLE.name else CLUSTER_ROLE.plural
        group = reference.get("apiGroup") or ""
        bind = Attributes(call.user, "bind", group, plural, "", call.namespace, name)
        if _is_about_deletion_only(document, old) or self._may(call, bind):
            return
        rules = self._authorizer.roles.of(kind, Key(call.namespace, name))
        if rules is None:
            raise NotFound(f'{kind.lower()}.{GROUP} "{name}" not found')
        self._require(call, document, [rule.document for rule in rules])

    def _may(self, call: Call, wish: Attributes) -> bool:
        return self._authorizer.allows(wish, inside=call.user is call.request.user)

    def _held(self, call: Call) -> Rules:
        return self._authorizer.roles.rules(call.user, call.namespace)

    def _require(self, call: Call, document: Document, rules: Iterable[Document]) -> None:
        rules = list(rules)
        if sum(map(_count, rules)) > MOST_RIGHTS:
            why = f"it holds more than {MOST_RIGHTS} single rights, too many to compare with yours"
            raise _refused(call, document, why)
        try:
            lacking = list(missing(self._held(call), rules))
        except _SpentError:
            why = "your rules and its are too many to compare: put yours together into fewer"
            raise _refused(call, document, why) from None
        if not lacking:
            return
        told = sorted({_shown(rule) for rule in _compact(lacking)})
        more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
        groups = " ".join(f'"{group}"' for group in call.user.groups)
        lines = "\n".join([*told[:MOST_TOLD], *more])
        why = (
            f'user "{call.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions '
            f"not currently held:\n{lines}"
        )
        raise _refused(call, document, why)


class _SpentError(Exception):
    """Rules are too many to compare."""


def missing(held: Rules, wanted: Iterable[Document]) -> Iterator[Document]:
    """The single rights of some rules that other rules do not hold.  Raises _SpentError."""
    left = MOST_COMPARED
    for rule in wanted:
        for right in _single(rule):
            asked = _asked(right)
            left -= 1 + len(held.rules if asked is None else held.about(*asked))
            if left < 0:
                raise _SpentError
            if not _holds(held, right, asked):
                yield right


def _asked(right: Document) -> tuple[str, str] | None:
    """Which resource and subresource a single right is about; None for an address."""
    if "nonResourceURLs" in right:
        return None
    resource, _, subresource = right["resources"][0].partition("/")
    return resource, subresource


def _single(rule: Document) -> Iterator[Document]:
    """The single rights that a rule stands for."""
    verbs = rule.get("verbs") or ()
    for url, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield {"verbs": [verb], "nonResourceURLs": [url]}
    names: Iterable[Any] = rule.get("resourceNames") or (None,)
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    for group, resource, name, verb in product(groups, resources, names, verbs):
        right = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
        yield right if name is None else right | {"resourceNames": [name]}


def _count(rule: Document) -> int:
    """How many single rights a rule stands for."""
    verbs, urls, groups, resources, names = (
        len(rule.get(field) or ())
        for field in ("verbs", "nonResourceURLs", "apiGroups", "resources", "resourceNames")
    )
    return verbs * (urls + groups * resources * max(names, 1))


def _holds(held: Rules, right: Document, asked: tuple[str, str] | None) -> bool:
    (verb,) = right["verbs"]
    if asked is None:
        return any(rule.allows_path(verb, right["nonResourceURLs"][0]) for rule in held.rules)
    objects = held.objects(verb, right["apiGroups"][0], *asked)
    return objects.has(right.get("resourceNames", [None])[0])


def _compact(rights: Iterable[Document]) -> Iterable[Document]:
    """Single rights on the same thing as one rule with all their verbs."""
    found: dict[tuple[tuple[str, str], ...], Document] = {}
    for right in rights:
        what = tuple((field, each[0]) for field, each in right.items() if field != "verbs")
        rule = found.setdefault(what, right | {"verbs": []})
        rule["verbs"] += [verb for verb in right["verbs"] if verb not in rule["verbs"]]
    return found.values()


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
    """Whether an update changes only what the garbage collector needs to."""
    return old is not None and _without(document) == _without(old)


def _without(document: Document) -> Document:
    metadata = document["metadata"]
    kept = {name: value for name, value in metadata.items() if name not in _OF_DELETION}
    return document | {"metadata": kept}


def _refused(call: Call, document: Document, why: str) -> Forbidden:
    return forbidden(call.kind, document["metadata"].get("name", ""), why)
