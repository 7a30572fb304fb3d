"""Tokens of ServiceAccounts, requested from the server (authentication.k8s.io/v1 TokenRequest)."""

import msgspec
from lightkube.models.core_v1 import ServiceAccount

from corral.api.kinds import kind_of
from corral.api.object import Document, Key
from corral.client.client import Client, path_of


async def token_of(
    client: Client, account: Key, *, kind: str, name: str, uid: str, seconds: int
) -> str:
    """Return a token of an account, valid for ``seconds`` and while its bound object exists.

    ``kind``, ``name`` and ``uid`` are of the bound object: of v1, in the account's namespace.
    Raises ApiError.
    """
    bound = {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}
    request: Document = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }
    path = path_of(kind_of(ServiceAccount), account, "token")
    response = msgspec.json.decode(await client.request("POST", path, document=request))
    return str(response["status"]["token"])
