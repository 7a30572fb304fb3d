"""Roles and bindings of the store, indexed by subject.

The index is synced before each lookup, from the store's changes since the last one.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import structlog

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
from corral.server.authz.stored_changes import StoredChanges
from corral.server.request.call import storage
from corral.store import Record, Store

_ROLES = (storage(ROLE), storage(CLUSTER_ROLE))
_BINDINGS = (storage(ROLE_BINDING), storage(CLUSTER_ROLE_BINDING))
_MAX_CACHED = 4096

log = structlog.get_logger()

_Subject = tuple[str, str]
"""Kind and name of a subject: a user (also of a ServiceAccount), or a group."""


class _Binding(NamedTuple):
    """A parsed RoleBinding or ClusterRoleBinding."""

    key: Key
    kind: str
    role: str
    subjects: tuple[tuple[_Subject, str], ...]
    """Each with its text in messages."""

    def describe(self, subject_text: str) -> str:
        where = f"{self.key.name}/{self.key.namespace}" if self.key.namespace else self.key.name
        kind = "RoleBinding" if self.key.namespace else "ClusterRoleBinding"
        return f'{kind} "{where}" of {self.kind} "{self.role}" to {subject_text}'


class Roles:
    """The roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = StoredChanges(store, (*_ROLES, *_BINDINGS))
        self._rules: dict[Key, tuple[PolicyRule, ...]] = {}
        """Rules by role; ClusterRoles have an empty namespace."""
        self._bindings: dict[str, dict[_Subject, dict[str, _Binding]]] = defaultdict(dict)
        """By namespace, subject and name."""
        self._resolved: dict[tuple[str, tuple[str, ...], str], Rules] = {}

    def rules(self, user: User, namespace: str) -> Rules:
        """Return the rules of a user in a namespace or, without one, in the cluster."""
        self._sync()
        cache_key = (user.name, user.groups, namespace)
        rules = self._resolved.get(cache_key)
        if rules is None:
            if len(self._resolved) >= _MAX_CACHED:
                self._resolved.clear()
            bindings = self._bound(user, namespace)
            rules = Rules(rule for binding, _ in bindings for rule in self._rules_of(binding) or ())
            self._resolved[cache_key] = rules
        return rules

    def reason(self, attributes: Attributes) -> str:
        """Return a message with the binding that grants a right; "" if none does."""
        self._sync()
        for binding, subject_text in self._bound(attributes.user, attributes.namespace):
            if any(rule.allows(attributes) for rule in self._rules_of(binding) or ()):
                return f"RBAC: allowed by {binding.describe(subject_text)}"
        return ""

    def missing_roles(self, user: User, namespace: str) -> str:
        """Return a message about roles that are bound to a user but missing; "" for none."""
        self._sync()
        missing = [
            f'{binding.kind.lower()}.{ROLE.group} "{binding.role}" not found'
            for binding, _ in self._bound(user, namespace)
            if self._rules_of(binding) is None
        ]
        shown = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
        return f"RBAC: {shown}" if missing else ""

    def of(self, kind: str, key: Key) -> tuple[PolicyRule, ...] | None:
        """Return the rules of a role that a binding refers to; None if it is missing."""
        self._sync()
        return self._rules.get(key if kind == ROLE.name else Key("", key.name))

    def _rules_of(self, binding: _Binding) -> tuple[PolicyRule, ...] | None:
        namespace = binding.key.namespace if binding.kind == ROLE.name else ""
        return self._rules.get(Key(namespace, binding.role))

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """Yield the bindings of a user, sorted by name, each with the text of its subject."""
        subjects = [(USER, user.name), *((GROUP_OF_USERS, group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            by_subject = self._bindings.get(scope, {})
            bindings: dict[str, _Binding] = {}
            for subject in subjects:
                bindings |= by_subject.get(subject, {})
            for _, binding in sorted(bindings.items()):
                subject_text = next(
                    text for subject, text in binding.subjects if subject in subjects
                )
                yield binding, subject_text

    # ------------------------------------------------------------- the store

    def _sync(self) -> None:
        """Sync the index with the store."""
        for kind, changes in self._changes:
            self._resolved.clear()
            if changes is None:
                self._drop_all(kind)
                for record in self._store.objects(kind):
                    self._add(record)
                continue
            for change in changes:
                if change.previous is not None:
                    self._remove(change.previous)
                if not change.deleted:
                    self._add(change.record)

    def _drop_all(self, kind: str) -> None:
        cluster = kind in (storage(CLUSTER_ROLE), storage(CLUSTER_ROLE_BINDING))
        if kind in _ROLES:
            for key in [key for key in self._rules if cluster == (not key.namespace)]:
                del self._rules[key]
        else:
            for namespace in [one for one in self._bindings if cluster == (not one)]:
                del self._bindings[namespace]

    def _add(self, record: Record) -> None:
        document = record.document()
        if record.kind in _ROLES:
            self._rules[record.key] = rules_of(document)
            return
        binding = _parse(record.key, document)
        if binding is None:
            log.warning("a binding is malformed and grants nothing", key=str(record.key))
            return
        by_subject = self._bindings[record.key.namespace]
        for subject, _ in binding.subjects:
            by_subject.setdefault(subject, {})[record.key.name] = binding

    def _remove(self, record: Record) -> None:
        if record.kind in _ROLES:
            self._rules.pop(record.key, None)
            return
        binding = _parse(record.key, record.document())
        if binding is None:
            return
        by_subject = self._bindings[record.key.namespace]
        for subject, _ in binding.subjects:
            by_name = by_subject.get(subject, {})
            by_name.pop(record.key.name, None)
            if not by_name:
                by_subject.pop(subject, None)
        if not by_subject:
            self._bindings.pop(record.key.namespace, None)


def _parse(key: Key, document: Document) -> _Binding | None:
    """Parse a binding; None for a malformed one, as a manipulated store may hold."""
    try:
        reference = document["roleRef"]
        subjects = tuple(
            bindings
            for subject in document.get("subjects") or ()
            if (bindings := _subject(subject, key.namespace)) is not None
        )
        binding = _Binding(key, reference["kind"], reference["name"], subjects)
        hash(binding)  # raises TypeError if a field is no string: fields are dictionary keys
    except (KeyError, TypeError, AttributeError):
        return None
    return binding


def _subject(subject: Document, namespace: str) -> tuple[_Subject, str] | None:
    """Parse a subject; a ServiceAccount becomes the user of its name."""
    kind, name = subject["kind"], subject["name"]
    if kind != SERVICE_ACCOUNT:
        return (kind, name), f'{kind} "{name}"'
    within = subject.get("namespace") or namespace
    if not within:
        return None
    return (USER, user_name(within, name)), f'{kind} "{name}/{within}"'
