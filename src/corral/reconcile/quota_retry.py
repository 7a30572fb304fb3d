"""Lets loops try again at once when a namespace has room again.

What a quota or a limit range refuses is tried again after longer and longer waits, as everything
that fails is.  People who let a quota grow expect more of it, and so does who waits for the end of
another machine.  However many wait, what is tried at once is about as much as there is room for.
"""

import msgspec
from lightkube.models.core_v1 import LimitRange, ResourceQuota

from corral.api.kinds.core.pod_resources import amounts
from corral.api.object import Key
from corral.api.quantity import NOTHING, Amount
from corral.reconcile.context import World
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue


def retry_with_room(world: World, queue: WorkQueue[Key]) -> Informer[ResourceQuota]:
    """Hasten what failed in a namespace when more is allowed there than before.

    Answers the informer of quotas.
    """

    def hasten(item: msgspec.Struct) -> None:
        namespace = key_of(item).namespace
        queue.hasten(lambda key: key.namespace == namespace)

    def quota_changed(old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        if old is not None and (new is None or has_more_room(old, new)):
            hasten(old)

    def range_changed(old: LimitRange | None, _new: LimitRange | None) -> None:
        if old is not None:
            hasten(old)

    quotas = world.informers.of(ResourceQuota)
    quotas.handle(quota_changed)
    world.informers.of(LimitRange).handle(range_changed)
    return quotas


def has_more_room(old: ResourceQuota, new: ResourceQuota) -> bool:
    """Whether anything that was bounded is less so."""
    before, now = _left(old), _left(new)
    return any(name not in now or now[name] > left for name, left in before.items())


def _left(quota: ResourceQuota) -> dict[str, Amount]:
    hard = amounts(quota.spec.hard if quota.spec is not None else None)
    used = amounts(quota.status.used if quota.status is not None else None)
    return {name: most - used.get(name, NOTHING) for name, most in hard.items()}
