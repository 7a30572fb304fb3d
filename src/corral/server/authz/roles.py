"""Who has which rules: the roles and bindings of the store, indexed by whom they are about.

The index follows the store: before it is asked it takes in what has changed, and nothing else.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from corral.api.errors import Gone
from corral.api.kinds.auth.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    GROUP_OF_USERS,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    USER,
)
from corral.api.object import Document, Key
from corral.api.request import User
from corral.server.authn.service_accounts import user_name
from corral.server.authz.attributes import Attributes
from corral.server.authz.policy_rules import PolicyRule, Rules, rules_of
from corral.server.request.call import storage
from corral.store import Record, Store

_ROLES = (storage(ROLE), storage(CLUSTER_ROLE))
_BINDINGS = (storage(ROLE_BINDING), storage(CLUSTER_ROLE_BINDING))
_MOST_REMEMBERED = 4096

log = structlog.get_logger()

_Subject = tuple[str, str]
"""A kind and a name: users, ServiceAccounts among them, and groups."""


class _Binding(NamedTuple):
    """A binding: which role, and to whom, as its document tells it."""

    key: Key
    kind: str
    role: str
    subjects: tuple[tuple[_Subject, str], ...]
    """Each with the words for it in a message."""

    def words(self, who: str) -> str:
        where = f"{self.key.name}/{self.key.namespace}" if self.key.namespace else self.key.name
        kind = "RoleBinding" if self.key.namespace else "ClusterRoleBinding"
        return f'{kind} "{where}" of {self.kind} "{self.role}" to {who}'


class Roles:
    """The roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = dict.fromkeys((*_ROLES, *_BINDINGS), -1)
        self._rules: dict[Key, tuple[PolicyRule, ...]] = {}
        """The rules of roles; those of ClusterRoles are under no namespace."""
        self._bindings: dict[str, dict[_Subject, dict[str, _Binding]]] = defaultdict(dict)
        """By namespace, subject and name."""
        self._resolved: dict[tuple[str, tuple[str, ...], str], Rules] = {}

    def rules(self, user: User, namespace: str) -> Rules:
        """What a user may do in a namespace or, without one, everywhere."""
        self._follow()
        asked = (user.name, user.groups, namespace)
        rules = self._resolved.get(asked)
        if rules is None:
            if len(self._resolved) >= _MOST_REMEMBERED:
                self._resolved.clear()
            found = self._bound(user, namespace)
            rules = Rules(rule for binding, _ in found for rule in self._of(binding) or ())
            self._resolved[asked] = rules
        return rules

    def reason(self, wish: Attributes) -> str:
        """By which binding something is allowed, in Kubernetes' words; empty where by none."""
        self._follow()
        for binding, who in self._bound(wish.user, wish.namespace):
            if any(rule.allows(wish) for rule in self._of(binding) or ()):
                return f"RBAC: allowed by {binding.words(who)}"
        return ""

    def fault(self, user: User, namespace: str) -> str:
        """Which roles are bound to a user, and are not there."""
        self._follow()
        missing = [
            f'{binding.kind.lower()}.{ROLE.group} "{binding.role}" not found'
            for binding, _ in self._bound(user, namespace)
            if self._of(binding) is None
        ]
        shown = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
        return f"RBAC: {shown}" if missing else ""

    def of(self, kind: str, key: Key) -> tuple[PolicyRule, ...] | None:
        """The rules of a role that a binding in a namespace names; None where there is none."""
        self._follow()
        return self._rules.get(key if kind == ROLE.name else Key("", key.name))

    def _of(self, binding: _Binding) -> tuple[PolicyRule, ...] | None:
        namespace = binding.key.namespace if binding.kind == ROLE.name else ""
        return self._rules.get(Key(namespace, binding.role))

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """The bindings to a user, by name, each with the words for whom it names."""
        subjects = [(USER, user.name), *((GROUP_OF_USERS, group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            known = self._bindings.get(scope, {})
            found: dict[str, _Binding] = {}
            for subject in subjects:
                found |= known.get(subject, {})
            for _, binding in sorted(found.items()):
                who = next(words for subject, words in binding.subjects if subject in subjects)
                yield binding, who

    # ------------------------------------------------------------- the store

    def _follow(self) -> None:
        """Take in what has changed since last time."""
        for kind, seen in self._seen.items():
            newest = self._store.last_changed(kind)
            if newest == seen:
                continue
            self._resolved.clear()
            try:
                changes = self._store.changes(kind, seen) if seen >= 0 else None
            except Gone:
                changes = None
            self._seen[kind] = newest
            if changes is None:
                self._forget(kind)
                for record in self._store.objects(kind):
                    self._put(record)
                continue
            for change in changes:
                if change.previous is not None:
                    self._remove(change.previous)
                if not change.deleted:
                    self._put(change.record)

    def _forget(self, kind: str) -> None:
        cluster = kind in (storage(CLUSTER_ROLE), storage(CLUSTER_ROLE_BINDING))
        if kind in _ROLES:
            for key in [key for key in self._rules if cluster == (not key.namespace)]:
                del self._rules[key]
        else:
            for namespace in [one for one in self._bindings if cluster == (not one)]:
                del self._bindings[namespace]

    def _put(self, record: Record) -> None:
        document = record.document()
        if record.kind in _ROLES:
            self._rules[record.key] = rules_of(document)
            return
        binding = _read(record.key, document)
        if binding is None:
            log.warning("a binding cannot be read: it gives nothing", key=str(record.key))
            return
        known = self._bindings[record.key.namespace]
        for subject, _ in binding.subjects:
            known.setdefault(subject, {})[record.key.name] = binding

    def _remove(self, record: Record) -> None:
        if record.kind in _ROLES:
            self._rules.pop(record.key, None)
            return
        binding = _read(record.key, record.document())
        if binding is None:
            return
        known = self._bindings[record.key.namespace]
        for subject, _ in binding.subjects:
            bound = known.get(subject, {})
            bound.pop(record.key.name, None)
            if not bound:
                known.pop(subject, None)
        if not known:
            self._bindings.pop(record.key.namespace, None)


def _read(key: Key, document: Document) -> _Binding | None:
    """A binding; None for one that somebody made who knows no bindings, as in a store's file."""
    try:
        reference = document["roleRef"]
        subjects = tuple(
            found
            for subject in document.get("subjects") or ()
            if (found := _subject(subject, key.namespace)) is not None
        )
        binding = _Binding(key, reference["kind"], reference["name"], subjects)
        hash(binding)  # of texts, where it may be anything: it is looked up by them
    except (KeyError, TypeError, AttributeError):
        return None
    return binding


def _subject(subject: Document, namespace: str) -> tuple[_Subject, str] | None:
    """Whom a binding names: a ServiceAccount is the user that it is known as."""
    kind, name = subject["kind"], subject["name"]
    if kind != SERVICE_ACCOUNT:
        return (kind, name), f'{kind} "{name}"'
    within = subject.get("namespace") or namespace
    if not within:
        return None
    return (USER, user_name(within, name)), f'{kind} "{name}/{within}"'
