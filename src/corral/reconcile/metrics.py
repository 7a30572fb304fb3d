"""What loops tell of their queues, as client-go does, and of their work: controller-runtime's."""

from collections.abc import Callable, Iterable
from typing import Any

from corral.metrics import Family, Source, counter, gauge, histogram
from corral.reconcile.controller import FAILED, LATER, REQUEUED, SUCCEEDED, Controller


def of(controllers: Callable[[], Iterable[Controller[Any]]]) -> Source:
    """The source of the figures of some loops; which they are is looked up each time."""

    async def tell() -> Iterable[Family]:
        present = list(controllers())
        return [*_queues(present), *_work(present)]

    return tell


def _queues(controllers: Iterable[Controller[Any]]) -> Iterable[Family]:
    depth = gauge("workqueue_depth", "Keys that wait for a worker.")
    adds = counter("workqueue_adds_total", "Keys that were added.")
    retries = counter("workqueue_retries_total", "Keys that were added again after a failure.")
    waited = histogram("workqueue_queue_duration_seconds", "How long keys waited for a worker.")
    worked = histogram("workqueue_work_duration_seconds", "How long keys were worked on.")
    unfinished = gauge(
        "workqueue_unfinished_work_seconds", "For how long keys have been worked on, in sum."
    )
    longest = gauge(
        "workqueue_longest_running_processor_seconds", "For how long a key has been worked on."
    )
    for each in controllers:
        queue, name = each.queue, {"name": each.name}
        working = queue.working()
        depth.add(len(queue), name)
        adds.add(queue.adds, name)
        retries.add(queue.retries, name)
        waited.add_histogram(queue.waited, name)
        worked.add_histogram(queue.worked, name)
        unfinished.add(sum(working), name)
        longest.add(max(working, default=0), name)
    return depth, adds, retries, waited, worked, unfinished, longest


def _work(controllers: Iterable[Controller[Any]]) -> Iterable[Family]:
    total = counter("controller_runtime_reconcile_total", "Reconciles, by how they went.")
    errors = counter("controller_runtime_reconcile_errors_total", "Reconciles that failed.")
    took = histogram("controller_runtime_reconcile_time_seconds", "How long reconciles took.")
    workers = gauge("controller_runtime_max_concurrent_reconciles", "Workers of a loop.")
    active = gauge("controller_runtime_active_workers", "Workers that are at work.")
    for each in controllers:
        name = {"controller": each.name}
        for result in (SUCCEEDED, FAILED, REQUEUED, LATER):
            total.add(each.results[result], name | {"result": result})
        errors.add(each.results[FAILED], name)
        took.add_histogram(each.took, name)
        workers.add(each.workers, name)
        active.add(len(each.queue.working()), name)
    return total, errors, took, workers, active
