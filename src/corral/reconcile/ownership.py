"""Adoption and release of objects by their controller (Kubernetes' ControllerRefManager).

Every patch carries the uid and resourceVersion that the caller observed, so that it conflicts with
a concurrent change: of two controllers that adopt an orphan one succeeds, no reference is lost.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from corral.api.errors import Conflict, NotFound
from corral.api.object import Document, Object
from corral.client.client import Client
from corral.reconcile.batch import for_each
from corral.reconcile.objects import (
    is_being_deleted,
    key_of,
    owner_reference,
    owners_of,
    uid_of,
    version_of,
)

T = TypeVar("T", bound=msgspec.Struct)


async def adopt(client: Client, owner: Object, orphans: Sequence[T]) -> list[T]:
    """Make ``owner`` the controller of orphans; return them as patched, without deleted ones.

    Their other owners stay.  Raises ApiError: Conflict if an orphan has changed since, or if the
    owner is being deleted.
    """
    if not orphans:
        return []
    await require_not_deleted(client, owner)
    adopted: list[T] = []

    async def adopt_one(orphan: T) -> None:
        adopted.append(await _patch(client, orphan, owners_with(orphan, owner)))

    await _for_all(orphans, adopt_one)
    return adopted


async def release(client: Client, uid: str, owned: Sequence[msgspec.Struct]) -> None:
    """Remove the reference to the owner of this uid, and no other, from objects.

    Raises ApiError: Conflict if an object has changed since.
    """
    await _for_all(owned, partial(_release, client, uid))


def owners_with(view: msgspec.Struct, owner: Object) -> list[Document]:
    """Return the owner references of an object with ``owner`` as its controller."""
    return [*owners_without(view, owner.metadata.uid), owner_reference(owner)]


def owners_without(view: msgspec.Struct, uid: str) -> list[Document]:
    """Return the owner references of an object without the one of this uid."""
    return [owner.document() for owner in owners_of(view) if owner.uid != uid]


def patch_preconditions(view: msgspec.Struct) -> Document:
    """Return the metadata that makes a patch conflict if the object has changed since."""
    return {"uid": uid_of(view), "resourceVersion": version_of(view)}


async def require_not_deleted(client: Client, owner: Object) -> None:
    """Check against the server that an owner exists and is not being deleted.  Raises ApiError.

    The cache may be stale, and the garbage collector would delete what a deleted owner adopts.
    """
    current = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    if current.metadata.uid != owner.metadata.uid or is_being_deleted(current):
        raise Conflict(f"{owner.key} has been deleted or replaced: it adopts nothing")


async def _release(client: Client, uid: str, owned: msgspec.Struct) -> None:
    await _patch(client, owned, owners_without(owned, uid))


async def _patch(client: Client, view: T, owners: list[Document]) -> T:
    metadata = {**patch_preconditions(view), "ownerReferences": owners or None}
    return await client.patch(type(view), key_of(view), {"metadata": metadata})


async def _for_all(items: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Await ``act`` for all items, ignoring NotFound.  Raises the first other ApiError."""
    errors = [error for error in await for_each(items, act) if not isinstance(error, NotFound)]
    if errors:
        raise errors[0]
