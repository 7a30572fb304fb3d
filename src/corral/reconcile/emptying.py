"""Removes all objects of a kind, before what holds them goes."""

from functools import partial

from corral.api.errors import Conflict, NotFound
from corral.api.kind import Kind
from corral.client.client import Client
from corral.reconcile.batch import each
from corral.reconcile.objects import Partial, is_going, key_of, uid_of


async def remove_all(
    client: Client, kind: Kind, namespace: str = "", *, propagation: str | None = None
) -> bool:
    """Ask for the deletion of all of a kind, in a namespace or anywhere; whether any is left.

    Raises ApiError for what may not be deleted.
    """
    # Asked of the server, not of the cache: no more objects can come, none may be missed.
    found = (await client.list(Partial, namespace, kind=kind)).items
    staying = [item for item in found if not is_going(item)]
    refused = await each(staying, partial(_delete, client, kind, propagation))
    if refused:
        raise refused[0]
    return bool(found and (await client.list(Partial, namespace, kind=kind)).items)


async def _delete(client: Client, kind: Kind, propagation: str | None, item: Partial) -> None:
    try:
        await client.delete(
            Partial, key_of(item), uid=uid_of(item), propagation=propagation, kind=kind
        )
    except (NotFound, Conflict):
        return  # gone, or another one of its name by now
