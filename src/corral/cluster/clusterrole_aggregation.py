"""Aggregates the rules of ClusterRoles with an aggregationRule.

A role with the label ``rbac.authorization.k8s.io/aggregate-to-edit`` extends ``edit``; rules
written into an aggregated role itself are overwritten.
"""

from typing import Any

import msgspec
from lightkube.models.rbac_v1 import ClusterRole

from corral.api.errors import Conflict, NotFound
from corral.api.kinds.auth.rbac import aggregated
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
    """Cache of ClusterRoles; a change of any enqueues all aggregated ones."""

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
        desired = aggregated(document, map(_document, self.roles.items()))
        if desired == (document.get("rules") or []):
            return
        patch = {"metadata": {"resourceVersion": version_of(role)}, "rules": desired}
        try:
            await self._client.patch(ClusterRole, key, patch)
        except (Conflict, NotFound):
            return  # the cache has yet to show the change

    def _changed(self, _old: ClusterRole | None, _new: ClusterRole | None) -> None:
        for role in self.roles.items():
            if role.aggregationRule:
                self.queue.add(key_of(role))


def _document(role: ClusterRole) -> Document:
    """Return a role as a document without nulls."""
    document: Document = _without_nulls(msgspec.to_builtins(role))
    return document


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
