"""Immediate retries of creations that a quota refused, once the namespace has room again.

Refusals by a quota or a limit range are retried with exponential back-off, as every failure.  Users
who raise a quota, or who wait for another VMI to end, expect a retry at once.  However many keys
wait, only about as many are retried as there is room for.
"""

import msgspec
from lightkube.models.core_v1 import LimitRange, ResourceQuota

from corral.api.kinds.core.pod_resources import amounts
from corral.api.object import Key
from corral.api.quantity import ZERO, Amount
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue


def retry_on_quota_increase(
    context: ControllerContext, queue: WorkQueue[Key]
) -> Informer[ResourceQuota]:
    """Retry the failed keys of a namespace when its quota or limit range allows more than before.

    Return the informer of quotas.
    """

    def retry_namespace(item: msgspec.Struct) -> None:
        namespace = key_of(item).namespace
        queue.retry_now(lambda key: key.namespace == namespace)

    def quota_changed(old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        if old is not None and (new is None or has_more_room(old, new)):
            retry_namespace(old)

    def range_changed(old: LimitRange | None, _new: LimitRange | None) -> None:
        if old is not None:
            retry_namespace(old)

    quotas = context.informers.of(ResourceQuota)
    quotas.handle(quota_changed)
    context.informers.of(LimitRange).handle(range_changed)
    return quotas


def has_more_room(old: ResourceQuota, new: ResourceQuota) -> bool:
    """Return whether any bounded resource has more left than before."""
    before, now = _remaining(old), _remaining(new)
    return any(name not in now or now[name] > remaining for name, remaining in before.items())


def _remaining(quota: ResourceQuota) -> dict[str, Amount]:
    hard = amounts(quota.spec.hard if quota.spec is not None else None)
    used = amounts(quota.status.used if quota.status is not None else None)
    return {name: limit - used.get(name, ZERO) for name, limit in hard.items()}
