"""Objects and access decisions of another API server, for the length of one request.

The functions of admission and of subresources read objects without waiting, as from a store.  Here
a read of an object that has not been fetched yet raises ``_Missing``: the object is fetched, and
the function runs again, until it has all that it reads.  So functions must not change anything
before their last read; those of admission and of subresources do not.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from lightkube.models.authorization_v1 import SubjectAccessReview

from corral.api.encoding import decode_json, encode
from corral.api.errors import BadRequest, Conflict, InternalError, NotFound
from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.client.client import Client, path_of
from corral.server.authn.token_review import user_info
from corral.server.authz import components
from corral.server.authz.attributes import Attributes, forbidden
from corral.server.request.call import Call, storage
from corral.server.strategy.object_meta import Stale, unchanged
from corral.store import Record

MAX_READS: Final = 200
"""Reads of one request: a VirtualMachine refers to a few objects for each of its volumes."""
MAX_RESTARTS: Final = 5
"""Restarts of a request whose objects changed before its writes."""

T = TypeVar("T")
_KINDS: Final[Mapping[str, Kind]] = {storage(kind): kind for kind in KINDS if kind.is_kept}


class _Missing(Exception):
    """A read of something that has not been fetched yet; ``fetch`` does."""

    def __init__(self, fetch: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.fetch = fetch


class RemoteObjects:
    """Objects that one request reads; ``client`` is of the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._records: dict[tuple[str, Key], Record | None] = {}
        self._lists: dict[tuple[str, str], dict[Key, Record]] = {}
        self._decisions: dict[tuple[Any, ...], bool] = {}

    async def evaluate(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a function that reads from here.  Raises what it raises."""
        for _ in range(MAX_READS):
            try:
                return await function()
            except _Missing as missing:
                await missing.fetch()
        raise InternalError(f"the request needs more than {MAX_READS} other objects")

    def latest(self, kind: str, key: Key) -> Record | None:
        """Return an object by the resource name of its kind; None if there is none."""
        if (kind, key) not in self._records:
            raise _Missing(lambda: self._fetch(kind, key))
        return self._records[kind, key]

    def latest_all(self, kind: str, namespace: str = "") -> dict[Key, Record]:
        """Return all objects of a kind, in one namespace or in all."""
        if (kind, namespace) not in self._lists:
            raise _Missing(lambda: self._list(kind, namespace))
        return self._lists[kind, namespace]

    def allows(self, attributes: Attributes, *, is_component: bool = False) -> bool:
        """Return whether a right is granted by the API server, or to our own component."""
        if is_component and components.allow(attributes):
            return True
        key = _decision_key(attributes)
        if key not in self._decisions:
            raise _Missing(lambda: self._review(key, attributes))
        return self._decisions[key]

    def require(self, attributes: Attributes) -> None:
        """Check a right.  Raises Forbidden."""
        if not self.allows(attributes):
            raise forbidden(attributes)

    def forget(self) -> None:
        """Forget the objects, which may have changed."""
        self._records.clear()
        self._lists.clear()

    async def _fetch(self, kind: str, key: Key) -> None:
        self._records[kind, key] = None
        if not key.name:
            return
        try:
            body = await self._client.request("GET", path_of(_KINDS[kind], key))
        except (NotFound, BadRequest):  # the latter for a name that no object has
            return
        self._records[kind, key] = Record.of(kind, key, 0, 0, body, labels={})

    async def _list(self, kind: str, namespace: str) -> None:
        body = await self._client.request("GET", path_of(_KINDS[kind], Key(namespace, "")))
        documents = decode_json(body)["items"]
        keys = [
            Key(each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in documents
        ]
        self._lists[kind, namespace] = {
            key: Record.of(
                kind, key, 0, 0, encode(each), labels=each["metadata"].get("labels") or {}
            )
            for key, each in zip(keys, documents, strict=True)
        }

    async def _review(self, key: tuple[Any, ...], attributes: Attributes) -> None:
        answer = await self._client.create(SubjectAccessReview, access_review(attributes))
        self._decisions[key] = answer.status is not None and bool(answer.status.allowed)


def _decision_key(attributes: Attributes) -> tuple[Any, ...]:
    """Return attributes as the key of their decision: a user has a mapping."""
    return (encode(user_info(attributes.user)), *attributes[1:])


def access_review(attributes: Attributes) -> Document:
    """Return the SubjectAccessReview of a user's right."""
    user = user_info(attributes.user)
    spec: Document = {("user" if name == "username" else name): user[name] for name in user}
    if attributes.path:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    else:
        resource = {
            "verb": attributes.verb,
            "group": attributes.group,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "namespace": attributes.namespace,
            "name": attributes.name,
        }
        spec["resourceAttributes"] = {name: value for name, value in resource.items() if value}
    return {"metadata": {}, "spec": spec}


class RemoteRest:
    """Updates of objects of another API server, which validates and admits them itself."""

    def __init__(self, client: Client, objects: RemoteObjects) -> None:
        self.store = objects
        self._client = client

    async def answer(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a function that reads and updates objects here.

        It restarts where an object changed between its read and its write.
        """
        for _ in range(MAX_RESTARTS):
            try:
                return await self.store.evaluate(function)
            except Stale:
                self.store.forget()
        return await self.store.evaluate(function)

    async def evaluate_update(
        self, call: Call, record: Record, new: Document, old: Document | None = None
    ) -> Document | None:
        """Return the document that an update sends; None if it changes nothing.

        A dry run is sent at once: the API server validates it.
        """
        old = record.document() if old is None else old
        if unchanged(new, old):
            return None
        if call.query.get("dryRun"):
            await self._send(call, new, "dryRun=All")
        return new

    async def create_object(self, call: Call, document: Document) -> Response:
        """Create an object."""
        path = path_of(call.kind, Key(call.namespace, ""))
        dry = "dryRun=All" if call.query.get("dryRun") else ""
        body = await self._client.request("POST", path, query=dry, document=document)
        return Response(status=201, body=body)

    def require_newest(self, kind: Kind, key: Key, record: Record | None) -> None:
        """Leave it to the API server, which compares the resourceVersion of a write."""

    async def put(self, call: Call, document: Document) -> object:
        """Replace an object.  Raises Stale if it has changed, and ApiError."""
        return await self._send(call, document, "")

    async def _send(self, call: Call, document: Document, query: str) -> bytes:
        path = path_of(call.kind, call.key, call.subresource)
        try:
            return await self._client.request("PUT", path, query=query, document=document)
        except Conflict as error:
            raise Stale(error.message, details=error.details) from error
