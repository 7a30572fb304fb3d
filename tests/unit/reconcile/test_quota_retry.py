"""When a quota has more room than before."""

import asyncio

import msgspec
import pytest
from lightkube.models.core_v1 import LimitRange, ResourceQuota

from corral.aio import Background
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.quota_retry import has_more_room, retry_on_quota_increase
from corral.reconcile.workqueue import WorkQueue


def quota(hard, used=None):
    document = {"spec": {"hard": hard}, "status": {"used": used or {}}}
    return msgspec.convert(document, ResourceQuota)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (quota({"pods": "1"}), quota({"pods": "2"}), True),
        (quota({"pods": "2"}), quota({"pods": "1"}), False),
        (quota({"pods": "2"}, {"pods": "2"}), quota({"pods": "2"}, {"pods": "1"}), True),
        (quota({"pods": "2"}, {"pods": "1"}), quota({"pods": "2"}, {"pods": "2"}), False),
        (quota({"pods": "2", "cpu": "1"}), quota({"pods": "2"}), True),
        (quota({"pods": "2"}), quota({"pods": "2", "cpu": "1"}), False),
        (quota({"pods": "2", "cpu": "1"}), quota({"pods": "1", "cpu": "2"}), True),
    ],
)
def test_room_is_the_rest_of_any_limit(old, new, more):
    assert has_more_room(old, new) is more


@pytest.mark.looptime
async def test_keys_rejected_by_a_quota_are_retried_once_there_is_room(client):
    """And nothing else is."""

    async def allow(count):
        metadata = {"name": "q", "namespace": "default"}
        await client.patch(
            ResourceQuota,
            Key("default", "q"),
            {"metadata": metadata, "spec": {"hard": {"pods": count}}},
        )

    await client.create(
        ResourceQuota,
        {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}},
    )
    context, queue = ControllerContext(client), WorkQueue[Key](first_delay=1000.0)
    quotas = retry_on_quota_increase(context, queue)
    here, elsewhere = Key("default", "a"), Key("other", "a")
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await quotas.synced()
        for key in (here, elsewhere):
            queue.add(key)
            async with queue.process_next():
                queue.retry(key)
        await allow("0")
        await asyncio.sleep(1)
        assert len(queue) == 0, "there is less"
        await allow("2")
        await asyncio.sleep(1)
        async with queue.process_next() as key:
            assert key == here
        assert len(queue) == 0


@pytest.mark.looptime
async def test_keys_rejected_by_a_limit_range_are_retried_when_it_changes(client):
    context, queue = ControllerContext(client), WorkQueue[Key](first_delay=1000.0)
    retry_on_quota_increase(context, queue)
    here, elsewhere = Key("default", "a"), Key("other", "a")
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    more = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
    ranges = Key("default", "r")
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await asyncio.sleep(1)
        queue.add(elsewhere)
        async with queue.process_next():
            queue.retry(elsewhere)
        for change, tried in (
            (client.create(LimitRange, {"metadata": ranges._asdict(), "spec": limits}), 0),
            (client.patch(LimitRange, ranges, {"spec": more}), 1),
            (client.delete(LimitRange, ranges), 1),
        ):
            queue.add(here)
            async with queue.process_next():
                queue.retry(here)
            await change
            await asyncio.sleep(1)
            assert len(queue) == tried
            for _ in range(tried):
                async with queue.process_next() as key:
                    assert key == here
