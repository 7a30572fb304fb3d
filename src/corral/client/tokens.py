"""Tokens of ServiceAccounts, as the server gives them (authentication.k8s.io/v1 TokenRequest)."""

import msgspec
from lightkube.models.core_v1 import ServiceAccount

from corral.api.kinds import kind_of
from corral.api.object import Document, Key
from corral.client.client import Client, path_of


async def token_of(
    client: Client, account: Key, *, kind: str, name: str, uid: str, seconds: int
) -> str:
    """A token of an account, good for so long and as long as what it is bound to is there.

    ``kind``, ``name`` and ``uid`` are that object's, of v1 in the account's namespace.  Raises
    ApiError.
    """
    bound = {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}
    wish: Document = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }
    path = path_of(kind_of(ServiceAccount), account, "token")
    answer = msgspec.json.decode(await client.ask("POST", path, document=wish))
    return str(answer["status"]["token"])
