"""Gathers the rules of ClusterRoles that are made of others (Kubernetes' role aggregation).

Whoever brings a role with the label ``rbac.authorization.k8s.io/aggregate-to-edit`` adds to what
``edit`` allows; what is written into such a role itself does not stay.
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
    """The controller that gathers rules."""
    loop = Aggregation(context)
    return Controller(
        "aggregation", loop.reconcile, queue=loop.queue, sources=(loop.roles,), workers=1
    )


class Aggregation:
    """The ClusterRoles; those that are made of others are looked at when any of them changes."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.roles = context.informers.of(ClusterRole)
        self._client = context.client
        self.roles.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Give a role the rules of those that it is made of."""
        role = self.roles.get(key)
        if role is None or not role.aggregationRule or is_being_deleted(role):
            return
        document = _bare(role)
        wanted = aggregated(document, map(_bare, self.roles.items()))
        if wanted == (document.get("rules") or []):
            return
        patch = {"metadata": {"resourceVersion": version_of(role)}, "rules": wanted}
        try:
            await self._client.patch(ClusterRole, key, patch)
        except (Conflict, NotFound):
            return  # the cache has yet to show what it is by now

    def _changed(self, _old: ClusterRole | None, _new: ClusterRole | None) -> None:
        for role in self.roles.items():
            if role.aggregationRule:
                self.queue.add(key_of(role))


def _bare(role: ClusterRole) -> Document:
    """A role as a document, without what it does not say."""
    document: Document = _without_nulls(msgspec.to_builtins(role))
    return document


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
