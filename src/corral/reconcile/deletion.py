"""Deletion of objects: one with its uid, or all of a kind."""

from collections.abc import Sequence
from functools import partial

import msgspec

from corral.api.errors import Conflict, NotFound
from corral.api.kind import Kind
from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.batch import for_each
from corral.reconcile.objects import Partial, is_being_deleted, key_of, uid_of


async def remove(
    client: Client,
    view: type[msgspec.Struct],
    key: Key,
    uid: str,
    *,
    version: str = "",
    grace_seconds: int | None = None,
    propagation: str | None = None,
    kind: Kind | None = None,
) -> bool:
    """Request an object's deletion; return False if it is gone or replaced by another uid.

    ``version`` is the resourceVersion that it must still have.  Raises ApiError: Conflict if it has
    another; a webhook may answer that, too.
    """
    try:
        await client.delete(
            view,
            key,
            uid=uid,
            version=version,
            grace_seconds=grace_seconds,
            propagation=propagation,
            kind=kind,
        )
    except NotFound:
        return False
    except Conflict:
        if await exists(client, key, uid, kind or kind_of(view)):
            raise
        return False
    return True


async def exists(client: Client, key: Key, uid: str, kind: Kind) -> bool:
    """Return whether the server has an object of this name and this uid.  Raises ApiError."""
    try:
        return uid_of(await client.get(Partial, key.name, key.namespace, kind=kind)) == uid
    except NotFound:
        return False


async def remove_all(
    client: Client, kind: Kind, namespace: str = "", *, propagation: str | None = None
) -> Sequence[Partial]:
    """Request the deletion of all objects of a kind; return those that are still there.

    Without a namespace, those of all namespaces.  Raises ApiError if a deletion is refused.
    """
    # Listed from the server, not from a cache: no further objects can come, none may be missed.
    listed = (await client.list(Partial, namespace, kind=kind)).items
    remaining = [item for item in listed if not is_being_deleted(item)]
    errors = await for_each(remaining, partial(_delete, client, kind, propagation))
    if errors:
        raise errors[0]
    return (await client.list(Partial, namespace, kind=kind)).items if listed else []


async def _delete(client: Client, kind: Kind, propagation: str | None, item: Partial) -> None:
    await remove(client, Partial, key_of(item), uid_of(item), propagation=propagation, kind=kind)
