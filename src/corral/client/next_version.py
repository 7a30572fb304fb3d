"""Waits for the next version of one object."""

from contextlib import aclosing, suppress
from typing import TypeVar

from corral.api.errors import Gone, NotFound
from corral.api.object import Object
from corral.client.client import Client
from corral.client.decoding import Bookmark, Unreadable

T = TypeVar("T", bound=Object)


async def next_version(client: Client, current: T) -> T:
    """Wait for the next version of an object; the present one, if the watch ends before.

    Raises NotFound once it is deleted, ApiError.
    """
    kind, (namespace, name) = type(current), current.key
    with suppress(Gone):
        watch = client.watch(
            kind,
            namespace,
            resource_version=current.metadata.resource_version,
            fields=f"metadata.name={name}",
        )
        async with aclosing(watch) as events:
            async for event in events:
                if isinstance(event, Bookmark | Unreadable):
                    continue
                if event.type == "DELETED":
                    raise NotFound(f"{kind.kind} {name} has been deleted")
                return event.object
    return await client.get(kind, name, namespace)
