"""Whether an object is gone: what a node asks before it ends a machine for good."""

from typing import Any

from corral.api.errors import NotFound
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.objects import uid_of


async def is_gone(client: Client, view: Any, key: Key, uid: str) -> bool:
    """Whether the server knows no object of that uid.

    A cache does not tell: an object that is damaged on disk is in no list, and not gone either.
    Raises ApiError where the server does not know.
    """
    try:
        return uid_of(await client.get(view, key.name, key.namespace)) != uid
    except NotFound:
        return True
