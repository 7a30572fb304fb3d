"""Aggregates the rules of ClusterRoles with an aggregationRule.

A role with the label ``rbac.authorization.k8s.io/aggregate-to-edit`` extends ``edit``; rules
written into an aggregated role itself are overwritten.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from lightkube.models.rbac_v1 import AggregationRule, ClusterRole

from corral.api.errors import Conflict, NotFound
from corral.api.kinds.auth.rbac import aggregated, aggregation_selector
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of, version_of
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Aggregation(context)
    return Controller(
        "aggregation", loop.reconcile, queue=loop.queue, sources=(loop.roles,), workers=1
    )


class Aggregation:
    """Cache of ClusterRoles; a change of one enqueues the aggregated ones that it extends."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.roles = context.informers.of(ClusterRole)
        self._client = context.client
        self.roles.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Write the rules of an aggregated role."""
        role = self.roles.get(key)
        if role is None or not role.aggregationRule or is_being_deleted(role):
            return
        document = _document(role)
        parts = filter(_selector(role.aggregationRule), self.roles.items())
        desired = aggregated(document, map(_document, parts))
        if desired == (document.get("rules") or []):
            return
        patch = {"metadata": {"resourceVersion": version_of(role)}, "rules": desired}
        try:
            await self._client.patch(ClusterRole, key, patch)
        except (Conflict, NotFound):
            return  # the cache has yet to show the change

    def _changed(self, old: ClusterRole | None, new: ClusterRole | None) -> None:
        changed = [each for each in (old, new) if each is not None]
        for role in self.roles.items():
            if (rule := role.aggregationRule) is None:
                continue
            key, extends = key_of(role), _selector(rule)
            if any(key_of(each) == key or extends(each) for each in changed):
                self.queue.add(key)


def _selector(rule: AggregationRule) -> Callable[[ClusterRole], bool]:
    """Return a predicate of roles: whether an aggregated role has their rules."""
    selects = aggregation_selector(_document(rule))
    return lambda role: selects((role.metadata and role.metadata.labels) or {})


def _document(value: ClusterRole | AggregationRule) -> Document:
    """Return a role or its aggregationRule as a document without nulls."""
    document: Document = _without_nulls(msgspec.to_builtins(value))
    return document


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
