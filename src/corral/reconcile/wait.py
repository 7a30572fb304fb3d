"""Waiting for a state of one object, by a watch."""

from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import msgspec

from corral.api.errors import Gone
from corral.api.object import Key
from corral.client.client import Client
from corral.client.decoding import WatchEvent
from corral.reconcile.objects import version_of

T = TypeVar("T", bound=msgspec.Struct)
_WATCH_SECONDS: Final = 300


async def wait_for(client: Client, view: type[T], key: Key, holds: Callable[[T], bool]) -> T:
    """Return an object once ``holds`` is true of it.

    It has no deadline of its own.  Raises ApiError: NotFound also if the object is deleted.
    """
    while not holds(item := await client.get(view, key.name, key.namespace)):
        watch = client.watch(
            view,
            key.namespace,
            resource_version=version_of(item),
            fields=f"metadata.name={key.name}",
            timeout_seconds=_WATCH_SECONDS,
        )
        with suppress(Gone):
            async with aclosing(watch) as events:
                async for event in events:
                    if not isinstance(event, WatchEvent) or event.type == "DELETED":
                        break
                    if holds(event.object):
                        return event.object
    return item
