"""Metrics of controllers: queues and syncs."""

import asyncio

import pytest

from corral.aio import Background
from corral.api.errors import Conflict, Unavailable
from corral.metrics import gauge
from corral.reconcile import metrics
from corral.reconcile.controller import Controller, Result
from corral.reconcile.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


async def figures(*controllers):
    families = await metrics.of(lambda: controllers)()
    samples = [sample for family in families for sample in family.samples]
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for sample in samples
    }


async def reconcile(key):
    match key:
        case "fails":
            raise Unavailable("away")
        case "lags":
            raise Conflict("old")
        case "later":
            return Result(requeue_after=1e6)
        case "stuck":
            await asyncio.sleep(1)
    return None


async def test_each_controller_has_metrics_of_work_done_and_pending():
    queue = WorkQueue[str](first_delay=1e6)
    controller = Controller("busy", reconcile, queue=queue, sources=[], workers=1)
    idle = Controller("idle", reconcile, queue=WorkQueue[str](), sources=[], workers=3)
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        for key in ("fine", "good", "fails", "lags", "later", "stuck", "waits"):
            queue.add(key)
        await asyncio.sleep(0.5)
        values = await figures(controller, idle)
    work = "controller_runtime_"
    results = {"success": 2, "error": 1, "requeue": 1, "requeue_after": 1}
    for result, count in results.items():
        assert values[f"{work}reconcile_total", "busy", result] == count
        assert values[f"{work}reconcile_total", "idle", result] == 0
    assert values[f"{work}reconcile_errors_total", "busy"] == 1
    assert values[f"{work}reconcile_time_seconds_count", "busy"] == 5
    assert values[f"{work}max_concurrent_reconciles", "busy"] == 1
    assert values[f"{work}max_concurrent_reconciles", "idle"] == 3
    assert values[f"{work}active_workers", "busy"] == 1
    assert values[f"{work}active_workers", "idle"] == 0
    assert values["workqueue_depth", "busy"] == 1
    assert values["workqueue_adds_total", "busy"] == 7
    assert values["workqueue_adds_total", "idle"] == 0
    assert values["workqueue_retries_total", "busy"] == 2
    assert values["workqueue_retries_total", "idle"] == 0
    assert values["workqueue_queue_duration_seconds_count", "busy"] == 6
    assert values["workqueue_work_duration_seconds_count", "busy"] == 5
    unfinished = values["workqueue_unfinished_work_seconds", "busy"]
    longest = values["workqueue_longest_running_processor_seconds", "busy"]
    assert 0 < longest <= unfinished < 60
    assert values["workqueue_unfinished_work_seconds", "idle"] == 0
    assert values["workqueue_longest_running_processor_seconds", "idle"] == 0


async def test_a_controller_may_have_metrics_of_its_own():
    def families():
        family = gauge("sheep", "Sheep that were counted.")
        family.add(3)
        return (family,)

    queue = WorkQueue[str]()
    controller = Controller("shepherd", reconcile, queue=queue, sources=[], families=families)
    assert (await figures(controller))["sheep",] == 3
