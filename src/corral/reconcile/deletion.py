"""Removes objects: one that was seen, or all of a kind before what holds them goes."""

from collections.abc import Sequence
from functools import partial

import msgspec

from corral.api.errors import Conflict, NotFound
from corral.api.kind import Kind
from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.batch import each
from corral.reconcile.objects import Partial, is_going, key_of, uid_of


async def remove(
    client: Client,
    view: type[msgspec.Struct],
    key: Key,
    uid: str,
    *,
    grace_seconds: int | None = None,
    propagation: str | None = None,
    kind: Kind | None = None,
) -> bool:
    """Ask for an object's deletion; False where it is gone, or another one of its name is there.

    Raises ApiError: also Conflict, which a webhook may answer for an object that is still there.
    """
    try:
        await client.delete(
            view, key, uid=uid, grace_seconds=grace_seconds, propagation=propagation, kind=kind
        )
    except NotFound:
        return False
    except Conflict:
        if await is_there(client, key, uid, kind or kind_of(view)):
            raise
        return False
    return True


async def is_there(client: Client, key: Key, uid: str, kind: Kind) -> bool:
    """Whether the server has an object of this name and this uid.  Raises ApiError."""
    try:
        return uid_of(await client.get(Partial, key.name, key.namespace, kind=kind)) == uid
    except NotFound:
        return False


async def remove_all(
    client: Client, kind: Kind, namespace: str = "", *, propagation: str | None = None
) -> Sequence[Partial]:
    """Ask for the deletion of all of a kind, in a namespace or anywhere; answers what is left.

    Raises ApiError for what may not be deleted.
    """
    # Asked of the server, not of the cache: no more objects can come, none may be missed.
    found = (await client.list(Partial, namespace, kind=kind)).items
    staying = [item for item in found if not is_going(item)]
    refused = await each(staying, partial(_delete, client, kind, propagation))
    if refused:
        raise refused[0]
    return (await client.list(Partial, namespace, kind=kind)).items if found else []


async def _delete(client: Client, kind: Kind, propagation: str | None, item: Partial) -> None:
    await remove(client, Partial, key_of(item), uid_of(item), propagation=propagation, kind=kind)
