"""Takes over objects that nobody manages, and lets go of them (Kubernetes' controller references).

Every change names the version that was looked at, so it is refused where somebody else has changed
the object meanwhile: of two that want an orphan one gets it, and nobody's reference is lost.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from corral.api.errors import Conflict, NotFound
from corral.api.object import Document, Object
from corral.client.client import Client
from corral.reconcile.batch import each
from corral.reconcile.objects import (
    is_going,
    key_of,
    owner_reference,
    owners_of,
    uid_of,
    version_of,
)

T = TypeVar("T", bound=msgspec.Struct)


async def adopt(client: Client, owner: Object, orphans: Sequence[T]) -> list[T]:
    """Make ``owner`` the manager of objects that have none; answers them as they are now.

    Their other owners stay, and those that are gone are left out.  Raises ApiError: Conflict where
    one is not any more as it was seen, or where the owner goes.
    """
    if not orphans:
        return []
    await require_lasting(client, owner)
    adopted: list[T] = []

    async def take(orphan: T) -> None:
        adopted.append(await _patch(client, orphan, owners_with(orphan, owner)))

    await _for_all(orphans, take)
    return adopted


async def release(client: Client, uid: str, owned: Sequence[msgspec.Struct]) -> None:
    """Take the reference to the owner of this uid, and no other, off objects.

    Raises ApiError: Conflict where one is not any more as it was seen.
    """
    await _for_all(owned, partial(_release, client, uid))


def owners_with(view: msgspec.Struct, owner: Object) -> list[Document]:
    """The owners of an object, and ``owner`` as the one that manages it."""
    return [*owners_without(view, owner.metadata.uid), owner_reference(owner)]


def owners_without(view: msgspec.Struct, uid: str) -> list[Document]:
    """The owners of an object but for the one of this uid."""
    return [owner.document() for owner in owners_of(view) if owner.uid != uid]


def guard(view: msgspec.Struct) -> Document:
    """The part of a patch's metadata that refuses it where the object is not as it was seen."""
    return {"uid": uid_of(view), "resourceVersion": version_of(view)}


async def require_lasting(client: Client, owner: Object) -> None:
    """See that an owner is there and stays, which a cache may know wrong.  Raises ApiError.

    What is given to an owner that is gone would be collected with what that owned.
    """
    fresh = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    if fresh.metadata.uid != owner.metadata.uid or is_going(fresh):
        raise Conflict(f"{owner.key} has been deleted or replaced: it adopts nothing")


async def _release(client: Client, uid: str, owned: msgspec.Struct) -> None:
    await _patch(client, owned, owners_without(owned, uid))


async def _patch(client: Client, view: T, owners: list[Document]) -> T:
    metadata = {**guard(view), "ownerReferences": owners or None}
    return await client.patch(type(view), key_of(view), {"metadata": metadata})


async def _for_all(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Act on all of them; those that are gone need it no more."""
    refused = [error for error in await each(items, act) if not isinstance(error, NotFound)]
    if refused:
        raise refused[0]
