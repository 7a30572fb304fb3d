"""Metrics of controllers: client-go's of work queues, controller-runtime's of reconciles."""

from collections.abc import Callable, Iterable
from typing import Any

from corral.metrics import Family, Source, counter, gauge, histogram
from corral.reconcile.controller import FAILED, REQUEUED, REQUEUED_AFTER, SUCCEEDED, Controller


def of(controllers: Callable[[], Iterable[Controller[Any]]]) -> Source:
    """Return a source of the controllers' metrics; ``controllers`` is called at each scrape."""

    async def families() -> Iterable[Family]:
        present = list(controllers())
        own = (family for each in present for family in each.families())
        return [*_queues(present), *_work(present), *own]

    return families


def _queues(controllers: Iterable[Controller[Any]]) -> Iterable[Family]:
    depth = gauge("workqueue_depth", "Keys that wait for a worker.")
    adds = counter("workqueue_adds_total", "Keys that were added.")
    retries = counter("workqueue_retries_total", "Keys that were added again after a failure.")
    queue_durations = histogram(
        "workqueue_queue_duration_seconds", "How long keys waited for a worker."
    )
    work_durations = histogram(
        "workqueue_work_duration_seconds", "How long reconciles of keys took."
    )
    unfinished = gauge(
        "workqueue_unfinished_work_seconds", "Sum of the durations of reconciles in progress."
    )
    longest = gauge(
        "workqueue_longest_running_processor_seconds", "Duration of the longest one in progress."
    )
    for each in controllers:
        queue, name = each.queue, {"name": each.name}
        working = queue.processing_seconds()
        depth.add(len(queue), name)
        adds.add(queue.adds, name)
        retries.add(queue.retries, name)
        queue_durations.add_histogram(queue.queue_durations, name)
        work_durations.add_histogram(queue.work_durations, name)
        unfinished.add(sum(working), name)
        longest.add(max(working, default=0), name)
    return depth, adds, retries, queue_durations, work_durations, unfinished, longest


def _work(controllers: Iterable[Controller[Any]]) -> Iterable[Family]:
    total = counter("controller_runtime_reconcile_total", "Reconciles, by result.")
    errors = counter("controller_runtime_reconcile_errors_total", "Reconciles that failed.")
    durations = histogram("controller_runtime_reconcile_time_seconds", "How long reconciles took.")
    workers = gauge("controller_runtime_max_concurrent_reconciles", "Workers of a controller.")
    active = gauge("controller_runtime_active_workers", "Workers that reconcile a key now.")
    for each in controllers:
        name = {"controller": each.name}
        for result in (SUCCEEDED, FAILED, REQUEUED, REQUEUED_AFTER):
            total.add(each.results[result], name | {"result": result})
        errors.add(each.results[FAILED], name)
        durations.add_histogram(each.durations, name)
        workers.add(each.workers, name)
        active.add(len(each.queue.processing_seconds()), name)
    return total, errors, durations, workers, active
