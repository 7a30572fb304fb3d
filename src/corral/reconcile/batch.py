"""Carries out many requests at once, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from corral.api.errors import ApiError

T = TypeVar("T")

AT_ONCE = 64
"""Requests in flight: enough to fill the store's group commits, and no more than a connection
pool holds."""


async def each(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> list[ApiError]:
    """Await ``act`` for every item, several at a time; answers what was refused."""
    rest = iter(items)
    refused: list[ApiError] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(AT_ONCE, len(items))):
            tasks.create_task(_drain(rest, act, refused))
    return refused


async def slow_start(
    items: Sequence[T], act: Callable[[T], Awaitable[None]]
) -> tuple[int, list[ApiError]]:
    """Try one, then twice as many, and so on while all go well.

    Answers how many were tried, and what was refused: when every attempt fails for the same
    reason, few are made (as Kubernetes' ReplicaSet creates pods).
    """
    tried, size = 0, 1
    refused: list[ApiError] = []
    while tried < len(items) and not refused:
        refused = await each(items[tried : tried + size], act)
        tried = min(tried + size, len(items))
        size *= 2
    return tried, refused


async def _drain(
    rest: Iterator[T], act: Callable[[T], Awaitable[None]], refused: list[ApiError]
) -> None:
    for item in rest:
        try:
            await act(item)
        except ApiError as error:
            refused.append(error)
