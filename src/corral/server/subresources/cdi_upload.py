"""Uploads into claims: tokens for them, and a proxy to the claim's volume (CDI's upload proxy).

A client that may create an UploadTokenRequest gets a token for one claim.  A request with it to
``/v1beta1/upload`` is forwarded to the storage that holds the claim's volume.
"""

from collections.abc import Callable
from urllib.parse import quote

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.encoding import encode
from corral.api.errors import MethodNotAllowed, Unauthorized, Unavailable
from corral.api.kind import at
from corral.api.kinds.cdi.kinds import UPLOAD_TOKEN_REQUEST
from corral.api.kinds.core.kinds import NODE
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.pki import SigningKey
from corral.server.authn import jwt
from corral.server.authz.node_claims import is_volume_at
from corral.server.request import body, query
from corral.server.request.call import Call, Handler, json_response, not_found, storage
from corral.server.strategy.validation import conform, incoming
from corral.server.transport.connection import SLOW_BODY
from corral.store import Store

TOKEN_SECONDS = 300.0
"""Time in which an upload may begin with a token (CDI)."""
PREFIXES = ("/v1beta1/", "/v1alpha1/")
OPERATIONS = ("upload", "upload-async")
PATHS = {f"{prefix}{operation}": operation for prefix in PREFIXES for operation in OPERATIONS}
UPLOADS_PATH = "/uploads"
"""Path at which nodes of other hosts receive uploads."""

_METHODS = ("HEAD", "POST")


class _Claims(msgspec.Struct):
    """Claims of a token: one PersistentVolumeClaim, and the token's end in seconds since 1970."""

    namespace: str
    name: str
    uid: str
    expires: float


class Uploads:
    """Issues tokens for uploads, and forwards the uploads that bring one.

    ``target`` writes the content for claims of this host, see
    ``corral.node.storage.population.upload``; ``nodes`` finds the nodes of other hosts, which
    receive it below ``/uploads``.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        target: ASGIApp | None,
        nodes: Callable[[str], ASGIApp | None],
    ) -> None:
        self._store = store
        self._now = now
        self._target = target
        self._nodes = nodes
        self._key = SigningKey()

    def answers(self) -> dict[str, Handler]:
        """Return the handler of UploadTokenRequests, by their storage name."""
        return {storage(UPLOAD_TOKEN_REQUEST): self._answer}

    async def _answer(self, call: Call) -> Response:
        """Create a token for the claim of an UploadTokenRequest.  Raises NotFound, Invalid."""
        dry = query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
        document = incoming(call, body.read(call))
        conform(call, document)
        name = at(document, "spec", "pvcName") or ""
        record = self._store.latest(storage(CLAIM), Key(call.namespace, name))
        if record is None:
            raise not_found(CLAIM, name)
        uid = record.document()["metadata"]["uid"]
        claims = _Claims(call.namespace, name, uid, self._now() + TOKEN_SECONDS)
        document["metadata"]["creationTimestamp"] = rfc3339(self._now())
        document["status"] = {"token": "" if dry else jwt.sign(claims, self._key)}
        return json_response(encode(document), status=201)

    async def receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward an upload.  Raises ApiError for one without a valid token."""
        if scope["method"] not in _METHODS:
            raise MethodNotAllowed("send an upload by POST; HEAD checks the token")
        claims = self._claims(_authorization(scope))
        record = self._store.latest(storage(CLAIM), Key(claims.namespace, claims.name))
        if record is None or record.document()["metadata"]["uid"] != claims.uid:
            raise not_found(CLAIM, claims.name)
        operation = PATHS[scope["path"]]
        path = "/".join(("", *map(quote, (claims.namespace, claims.name, claims.uid)), operation))
        if (allow_slow_body := scope.get("extensions", {}).get(SLOW_BODY)) is not None:
            allow_slow_body()
        target = self._target
        if node := self._remote_node(record.document()):
            target, path = self._nodes(node), f"{UPLOADS_PATH}{path}"
        if target is None:
            raise Unavailable("uploads are not served: this server has no storage")
        passed = {**scope, "path": path, "raw_path": path.encode()}
        await target(passed, receive, send)

    def _remote_node(self, claim: Document) -> str:
        """Return the node of another host that has a claim's volume; empty for this host's."""
        name = at(claim, "spec", "volumeName") or ""
        volume = self._store.latest(storage(PERSISTENT_VOLUME), Key("", name))
        if volume is None:
            return ""
        for record in self._store.objects(storage(NODE)):
            has_port = at(record.document(), "status", "daemonEndpoints", "kubeletEndpoint", "Port")
            if has_port and is_volume_at(volume.document(), record.key.name, self._store):
                return record.key.name
        return ""

    def _claims(self, header: str) -> _Claims:
        scheme, _, token = header.partition(" ")
        found = None
        if scheme.lower() == "bearer":
            found = jwt.claims_of(token.strip(), self._key, _Claims)
        if found is None or found.expires < self._now():
            raise Unauthorized("the token of this upload is invalid or expired: request a new one")
        return found


def _authorization(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            return text
    return ""
