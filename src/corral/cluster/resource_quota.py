"""Controller of ResourceQuotas: writes their usage into the status.

For readers only: the server's admission computes usage itself.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from lightkube.models.core_v1 import ResourceQuota

from corral.api.kind import Kind
from corral.api.kinds.core.pod_resources import Amounts, amounts
from corral.api.object import Document, Key
from corral.api.quantity import ZERO
from corral.api.quota_usage import UNCOUNTED, UsageTotals, counts_kind, usage_of, view_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

if TYPE_CHECKING:
    from datetime import datetime

    from corral.reconcile.informer import Informer

BATCH_SECONDS = 0.1
"""Delay of events of a namespace's objects, so that they are handled together."""
_EXPIRY_SECONDS = 1.0
"""Delay of a sync after the end of a pod's grace period."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Quotas(context)
    return Controller(
        "quota",
        loop.reconcile,
        queue=loop.queue,
        sources=loop.sources,
    )


class Quotas:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self.quotas = context.informers.of(ResourceQuota)
        self.quotas.index(by_namespace)
        self.quotas.handle(self._quota_changed)
        self.contents: dict[str, Informer[Any]] = {}
        self._kinds: dict[str, Kind] = {}
        self._totals: dict[tuple[str, Key], UsageTotals[Any]] = {}
        """Keyed by kind and quota."""
        self._written: dict[Key, dict[str, Document]] = {}
        """The last status written, by quota."""
        self._informers = context.informers
        self.sources: list[Source] = [self.quotas]
        context.kinds.subscribe(self._kind_added)
        self.sources.append(context.kinds)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync the status of one quota."""
        quota = self.quotas.get(key)
        if quota is None or quota.spec is None:
            return None
        hard = amounts(quota.spec.hard)
        used: Amounts = dict.fromkeys(hard, ZERO)
        ends: list[datetime | None] = []
        now = self._clock()
        for kind in self._kinds.values():
            if any(counts_kind(kind, name) for name in hard):
                totals = self._of(kind, key)
                used |= totals.used(quota.spec, now)
                ends.append(totals.next_decrease(now))
        desired = {"hard": _texts(hard), "used": _texts(used)}
        old = _status(quota)
        if old != desired:
            # A merge patch: removed entries must be set to null by name.
            self._written[key] = desired
            status = {
                part: dict.fromkeys(old[part], None) | values for part, values in desired.items()
            }
            await self._client.patch(ResourceQuota, key, {"status": status}, subresource="status")
        end = min((each for each in ends if each is not None), default=None)
        return Result((end - now).total_seconds() + _EXPIRY_SECONDS) if end is not None else None

    def _of(self, kind: Kind, quota: Key) -> UsageTotals[Any]:
        """Return the charges of the objects of a kind in the quota's namespace."""
        newest = (
            ((uid_of(item), version_of(item)), item)
            for item in self.contents[kind.resource].indexed(by_namespace, quota.namespace)
        )
        totals = self._totals.setdefault(
            (kind.resource, quota), UsageTotals(kind, partial(usage_of, kind))
        )
        totals.update(newest)
        return totals

    def _quota_changed(self, old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        if new is not None:
            spec_changed = old is None or old.spec != new.spec
            if spec_changed or _status(new) != self._written.get(key_of(new)):
                self.queue.add(key_of(new))
        elif old is not None:
            gone = key_of(old)
            self._written.pop(gone, None)
            for address in [each for each in self._totals if each[1] == gone]:
                del self._totals[address]

    def _kind_added(self, kind: Kind) -> None:
        if not kind.namespaced or kind.resource in UNCOUNTED:
            return
        view = view_of(kind)
        informer: Informer[Any] = (
            self._informers.metadata(kind) if view is None else self._informers.of(view)
        )
        informer.index(by_namespace)
        informer.handle(partial(self._content_changed, is_read=view is not None))
        self.sources.append(informer)
        self.contents[kind.resource] = informer
        self._kinds[kind.resource] = kind
        for quota in self.quotas.items():
            hard = quota.spec.hard if quota.spec is not None else None
            if any(counts_kind(kind, name) for name in amounts(hard)):
                self.queue.add(key_of(quota))

    def _content_changed(
        self, old: msgspec.Struct | None, new: msgspec.Struct | None, *, is_read: bool
    ) -> None:
        """Enqueue the quotas of a namespace; updates do not matter for object counts."""
        changed = new or old
        if changed is None or (not is_read and old is not None and new is not None):
            return
        for quota in self.quotas.indexed(by_namespace, key_of(changed).namespace):
            self.queue.add_after(key_of(quota), BATCH_SECONDS)


def _texts(each: Amounts) -> dict[str, str]:
    return {name: str(one) for name, one in each.items()}


def _status(quota: ResourceQuota) -> dict[str, Document]:
    status = quota.status
    return {
        "hard": dict((status and status.hard) or {}),
        "used": dict((status and status.used) or {}),
    }
