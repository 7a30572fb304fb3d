"""Resource quotas of namespaces (Kubernetes' admission plugin ResourceQuota).

Usage is computed from the latest versions of all objects, staged ones included: of two concurrent
requests of which only one fits, only one is admitted.  The ``status`` of a quota, which a
controller writes later, is not used.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from lightkube.models.core_v1 import Pod, ResourceQuota

from corral.api.kind import Kind, at
from corral.api.kinds.core.pod import POD
from corral.api.kinds.core.pod_resources import Amounts, amounts
from corral.api.kinds.core.resource_quota import RESOURCE_QUOTA
from corral.api.object import Document
from corral.api.quota_usage import (
    CHANGING,
    UNCOUNTED,
    Usage,
    UsageTotals,
    exceeded,
    increase,
    matching_names,
    unspecified,
    usage_of,
    view_of,
)
from corral.server.request.call import forbidden, storage
from corral.store import Record, Store


class QuotaAdmission:
    """The quotas of a store.  ``now`` is seconds since 1970."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._totals: dict[str, dict[str, UsageTotals[Record]]] = {}
        """Cached charges by namespace and kind; namespaces without quotas have none."""

    def admit(self, kind: Kind, document: Document, old: Document | None) -> None:
        """Check an object to be stored against the quotas; ``old`` is its previous version.

        Raises Forbidden.
        """
        if not kind.namespaced or kind.resource in UNCOUNTED:
            return
        if old is not None and not _may_use_more(kind, document, old):
            return
        namespace = document["metadata"]["namespace"]
        records = self._store.objects(storage(RESOURCE_QUOTA), namespace)
        if not records:
            self._totals.pop(namespace, None)
            return
        quotas = [msgspec.convert(each.document(), ResourceQuota) for each in records]
        evaluation = _Evaluation(kind, document, old)
        for quota in quotas:
            evaluation.check_required(quota)
        requests = [
            (quota, requested_amounts)
            for quota in quotas
            if (requested_amounts := evaluation.requested(quota))
        ]
        if not requests:
            return
        totals, now = (
            self._current_charges(kind, namespace),
            datetime.fromtimestamp(self._now(), UTC),
        )
        for quota, requested_amounts in requests:
            assert quota.spec is not None
            evaluation.check_fits(quota, requested_amounts, totals.used(quota.spec, now))

    def _current_charges(self, kind: Kind, namespace: str) -> UsageTotals[Record]:
        """Return the charges of all objects of a kind in a namespace."""
        if namespace not in self._totals:
            self._prune()
        totals = self._totals.setdefault(namespace, {}).setdefault(
            kind.resource, UsageTotals(kind, partial(_of_record, kind))
        )
        records_of_kind = self._store.latest_all(storage(kind), namespace).values()
        totals.update((record.revision, record) for record in records_of_kind)
        return totals

    def _prune(self) -> None:
        """Drop cached charges of namespaces that have no quotas any more."""
        namespaces_with_quotas = {
            each.key.namespace for each in self._store.objects(storage(RESOURCE_QUOTA))
        }
        for namespace in self._totals.keys() - namespaces_with_quotas:
            del self._totals[namespace]


class _Evaluation:
    """The evaluation of one object against quotas."""

    def __init__(self, kind: Kind, document: Document, old: Document | None) -> None:
        self._kind = kind
        self._name = document["metadata"]["name"]
        self._item = _as_view(kind, document)
        self._usage = usage_of(kind, self._item)
        self._before = usage_of(kind, _as_view(kind, old)) if old is not None else None

    def check_required(self, quota: ResourceQuota) -> None:
        """Check that a pod specifies the resources that a quota bounds.  Raises Forbidden."""
        names = self._matching_names(quota, self._usage)
        if isinstance(self._item, Pod) and (missing := unspecified(self._item, names)):
            raise forbidden(self._kind, self._name, f"failed quota: {_name(quota)}: {missing}")

    def requested(self, quota: ResourceQuota) -> Amounts:
        """Return what the object requests of a quota in addition; empty if out of its scope."""
        names = self._matching_names(quota, self._usage)
        before: Amounts = {}
        if self._before is not None and self._matching_names(quota, self._before):
            before = self._before.amounts
        now = self._usage.amounts
        return increase({name: now[name] for name in names if name in now}, before)

    def check_fits(self, quota: ResourceQuota, requests: Amounts, used: Amounts) -> None:
        """Check that a quota has enough left.  Raises Forbidden."""
        hard = amounts(quota.spec.hard if quota.spec is not None else None)
        if excess := exceeded(hard, used, requests):
            raise forbidden(self._kind, self._name, f"exceeded quota: {_name(quota)}, {excess}")

    def _matching_names(self, quota: ResourceQuota, usage: Usage) -> list[str]:
        return matching_names(quota.spec, self._kind, usage) if quota.spec is not None else []


def _may_use_more(kind: Kind, document: Document, old: Document) -> bool:
    """Report whether an update may change the usage of an object: a pod can be resized.

    Its other changes pass though a newer quota requires resources that it does not specify.
    """
    if kind.resource == POD.resource:
        return _resources(document) != _resources(old)
    return kind.resource in CHANGING


def _resources(pod: Document) -> list[Any]:
    return [
        container.get("resources") or None
        for part in ("initContainers", "containers")
        for container in at(pod, "spec", part) or ()
    ]


def _name(quota: ResourceQuota) -> str:
    return (quota.metadata and quota.metadata.name) or ""


def _as_view(kind: Kind, document: Document) -> msgspec.Struct | None:
    view = view_of(kind)
    return msgspec.convert(document, view) if view is not None else None


def _of_record(kind: Kind, record: Record) -> Usage:
    return usage_of(kind, _as_view(kind, record.document()) if view_of(kind) is not None else None)
