"""Nothing is stored that the quotas of its namespace have no room for (Kubernetes' ResourceQuota).

What is taken is what the newest versions of all objects say, those on their way to the disk among
them: of two that come at once, and of which only one fits, only one is let in.  Nothing else is
kept, and ``status`` of a quota, which a loop tells, is not asked.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec
from lightkube.models.core_v1 import Pod, ResourceQuota

from corral.api.kind import Kind
from corral.api.kinds.core.pod_resources import Amounts, amounts
from corral.api.kinds.core.resource_quota import RESOURCE_QUOTA
from corral.api.object import Document
from corral.api.quota_usage import (
    CHANGING,
    UNCOUNTED,
    Charge,
    Charges,
    charge,
    concerns,
    exceeded,
    more,
    unsaid,
    view_of,
)
from corral.server.request.call import forbidden, storage
from corral.store import Record, Store


class QuotaAdmission:
    """The quotas of a store.  ``now`` is seconds since 1970."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._charges: dict[str, dict[str, Charges[Record]]] = {}
        """By namespace and kind; of namespaces without quotas nothing is known."""

    def admit(self, kind: Kind, document: Document, old: Document | None) -> None:
        """Let an object that is about to be stored pass.

        ``old`` is what it was before, if it was.  Raises Forbidden.
        """
        if not kind.namespaced or kind.resource in UNCOUNTED:
            return
        if old is not None and kind.resource not in CHANGING:
            return
        namespace = document["metadata"]["namespace"]
        records = self._store.objects(storage(RESOURCE_QUOTA), namespace)
        if not records:
            self._charges.pop(namespace, None)
            return
        quotas = [msgspec.convert(each.document(), ResourceQuota) for each in records]
        asking = _Asking(kind, document, old)
        for quota in quotas:
            asking.require(quota)
        asked = [(quota, each) for quota in quotas if (each := asking.of(quota))]
        if not asked:
            return
        charges, now = self._newest(kind, namespace), datetime.fromtimestamp(self._now(), UTC)
        for quota, each in asked:
            assert quota.spec is not None
            asking.fit(quota, each, charges.used(quota.spec, now))

    def _newest(self, kind: Kind, namespace: str) -> Charges[Record]:
        """What the objects of a kind take of quotas."""
        if namespace not in self._charges:
            self._forget()
        charges = self._charges.setdefault(namespace, {}).setdefault(
            kind.resource, Charges(kind, partial(_of_record, kind))
        )
        newest = self._store.latest_all(storage(kind), namespace).values()
        charges.follow((record.revision, record) for record in newest)
        return charges

    def _forget(self) -> None:
        """Let go of namespaces that have no quotas any more: most are gone themselves."""
        known = {each.key.namespace for each in self._store.objects(storage(RESOURCE_QUOTA))}
        for namespace in self._charges.keys() - known:
            del self._charges[namespace]


class _Asking:
    """An object that asks for room."""

    def __init__(self, kind: Kind, document: Document, old: Document | None) -> None:
        self._kind = kind
        self._name = document["metadata"]["name"]
        self._item = _viewed(kind, document)
        self._charge = charge(kind, self._item)
        self._before = charge(kind, _viewed(kind, old)) if old is not None else None

    def require(self, quota: ResourceQuota) -> None:
        """Refuse a pod that does not say what a quota has to know."""
        names = self._concerns(quota, self._charge)
        if isinstance(self._item, Pod) and (lacking := unsaid(self._item, names)):
            raise forbidden(self._kind, self._name, f"failed quota: {_name(quota)}: {lacking}")

    def of(self, quota: ResourceQuota) -> Amounts:
        """What is asked of a quota: nothing, where it is not about such an object."""
        names = self._concerns(quota, self._charge)
        before: Amounts = {}
        if self._before is not None and self._concerns(quota, self._before):
            before = self._before.amounts
        now = self._charge.amounts
        return more({name: now[name] for name in names if name in now}, before)

    def fit(self, quota: ResourceQuota, asked: Amounts, used: Amounts) -> None:
        """Refuse what is more than a quota has left."""
        hard = amounts(quota.spec.hard if quota.spec is not None else None)
        if over := exceeded(hard, used, asked):
            raise forbidden(self._kind, self._name, f"exceeded quota: {_name(quota)}, {over}")

    def _concerns(self, quota: ResourceQuota, charged: Charge) -> list[str]:
        return concerns(quota.spec, self._kind, charged) if quota.spec is not None else []


def _name(quota: ResourceQuota) -> str:
    return (quota.metadata and quota.metadata.name) or ""


def _viewed(kind: Kind, document: Document) -> msgspec.Struct | None:
    view = view_of(kind)
    return msgspec.convert(document, view) if view is not None else None


def _of_record(kind: Kind, record: Record) -> Charge:
    return charge(kind, _viewed(kind, record.document()) if view_of(kind) is not None else None)
