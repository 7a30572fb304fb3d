"""Concurrent requests for many items, bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from corral.api.errors import ApiError

T = TypeVar("T")

MAX_IN_FLIGHT = 64
"""Concurrent requests: enough to fill the store's group commits, no more than a connection pool
holds."""


async def for_each(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> list[ApiError]:
    """Await ``act`` for every item, ``MAX_IN_FLIGHT`` at a time; return the errors."""
    pending = iter(items)
    errors: list[ApiError] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(MAX_IN_FLIGHT, len(items))):
            tasks.create_task(_drain(pending, act, errors))
    return errors


async def slow_start_batch(
    items: Sequence[T], act: Callable[[T], Awaitable[None]]
) -> tuple[int, list[ApiError]]:
    """Await ``act`` for one item, then for twice as many, and so on until one fails.

    Return how many items were tried, and the errors.  When every attempt fails for the same
    reason, few are made (slowStartBatch of Kubernetes' ReplicaSet controller).
    """
    tried, size = 0, 1
    errors: list[ApiError] = []
    while tried < len(items) and not errors:
        errors = await for_each(items[tried : tried + size], act)
        tried = min(tried + size, len(items))
        size *= 2
    return tried, errors


async def _drain(
    pending: Iterator[T], act: Callable[[T], Awaitable[None]], errors: list[ApiError]
) -> None:
    for item in pending:
        try:
            await act(item)
        except ApiError as error:
            errors.append(error)
