"""Typed requests to an API server: get, list, watch, create, replace, patch, delete.

A *view* is the Struct type that a response is decoded into; it also determines the kind, unless
``kind`` is given (a view of the metadata alone fits every kind).  Views do not hold
``managedFields``: no controller reads them, and they would be most of a cache's memory.  Error
responses are raised as ``corral.api.errors.ApiError``.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from corral.api.errors import ApiError, BadRequest, InternalError
from corral.api.kind import Kind
from corral.api.kinds import kind_of
from corral.api.names import path_segment_faults
from corral.api.object import Document, Key
from corral.api.request import Request, Response
from corral.client.decoding import (
    UNREADABLE,
    Bookmark,
    Reader,
    Unreadable,
    WatchEvent,
    error_from,
    lines_of,
    page_of,
    read,
)
from corral.client.transport import Transport

T = TypeVar("T", bound=msgspec.Struct)

_PAGE = 1000
_JSON = {"content-type": "application/json", "accept": "application/json"}
_MERGE_PATCH = {**_JSON, "content-type": "application/merge-patch+json"}
_JSON_PATCH = {**_JSON, "content-type": "application/json-patch+json"}


@dataclass(frozen=True, slots=True)
class ListOf(Generic[T]):
    """All objects of a list, as of one resourceVersion."""

    items: list[T]
    resource_version: str


class Client:
    """A client of an API server over a transport.

    ``observe`` is called with each decoded object of a response to a get or a write.  ``reader``
    decodes lists and watches; clients may share one.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        observe: Callable[[msgspec.Struct], None] | None = None,
        reader: Reader | None = None,
    ) -> None:
        self._transport = transport
        self._observe = observe
        self._reader = reader or Reader()

    def with_observer(
        self, observe: Callable[[msgspec.Struct], None], watching: "Client"
    ) -> "Client":
        """Return a client of the same server that calls ``observe`` for each object it receives.

        It shares the reader of ``watching``, the client of the informers, so that an object in a
        response is not decoded again when its watch event arrives.
        """
        reader = watching._reader  # noqa: SLF001 - of the same class
        return Client(self._transport, observe=observe, reader=reader)

    async def get(
        self,
        view: type[T],
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        kind: Kind | None = None,
    ) -> T:
        path = path_of(kind or kind_of(view), Key(namespace, name), subresource)
        return self._decode(view, await self._send("GET", path))

    async def list(
        self,
        view: type[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        kind: Kind | None = None,
    ) -> ListOf[T]:
        """Return every object of a kind, in one namespace or in all; requested in pages.

        Objects that the view cannot decode are left out: one must not hide all others.
        """
        kind = kind or kind_of(view)
        path = path_of(kind, Key(namespace, ""))
        query = _query(labelSelector=labels, fieldSelector=fields, limit=str(_PAGE))
        items: list[T] = []
        while True:
            page = page_of(await self._send("GET", path, query))
            items += self._reader.items(view, kind, page)
            if not page.metadata.continue_:
                return ListOf(items, page.metadata.resource_version)
            query = _query(
                labelSelector=labels,
                fieldSelector=fields,
                limit=str(_PAGE),
                **{"continue": page.metadata.continue_},
            )

    async def watch(
        self,
        view: type[T],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 0,
        kind: Kind | None = None,
    ) -> AsyncGenerator[WatchEvent[T] | Unreadable | Bookmark, None]:
        """Yield the changes after a version, with bookmarks, until the server ends the stream.

        A change of an object that the view cannot decode comes as ``Unreadable``.  Raises Gone when
        the version is too old, or an event cannot be decoded at all: list again.
        """
        kind = kind or kind_of(view)
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=labels,
            fieldSelector=fields,
            timeoutSeconds=str(timeout_seconds or ""),
        )
        path = path_of(kind, Key(namespace, ""))
        response = await self._transport.send(
            Request(method="GET", path=path, query=query, headers=_JSON)
        )
        if response.status >= 400 or isinstance(response.body, bytes):
            raise await _error_from(response)
        async with aclosing(response.body) as chunks, aclosing(lines_of(chunks)) as lines:
            async for line in lines:
                yield self._reader.event(view, kind, line)

    async def create(
        self,
        view: type[T],
        document: Document | T,
        namespace: str = "",
        *,
        kind: Kind | None = None,
    ) -> T:
        """Create an object; the namespace may stand in the document instead."""
        kind = kind or kind_of(view)
        document = _document(kind, document)
        path = path_of(kind, Key(namespace or document["metadata"].get("namespace", ""), ""))
        return self._decode(view, await self._send("POST", path, body=document))

    async def replace(
        self,
        view: type[T],
        document: Document | T,
        *,
        subresource: str = "",
        kind: Kind | None = None,
    ) -> T:
        """Replace an object (PUT)."""
        kind = kind or kind_of(view)
        document = _document(kind, document)
        metadata = document["metadata"]
        path = path_of(kind, Key(metadata.get("namespace", ""), metadata["name"]), subresource)
        return self._decode(view, await self._send("PUT", path, body=document))

    async def patch(
        self,
        view: type[T],
        key: Key,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
        kind: Kind | None = None,
    ) -> T:
        """Patch an object: a mapping is a merge patch, a sequence a JSON patch."""
        headers = _MERGE_PATCH if isinstance(patch, Mapping) else _JSON_PATCH
        path = path_of(kind or kind_of(view), key, subresource)
        return self._decode(view, await self._send("PATCH", path, body=patch, headers=headers))

    async def apply(self, document: Document, key: Key, *, kind: Kind, manager: str) -> None:
        """Apply a document by server-side apply; it takes over fields of other managers."""
        query = _query(fieldManager=manager, force="true")
        headers = {**_JSON, "content-type": "application/apply-patch+yaml"}
        await self._send("PATCH", path_of(kind, key), query, body=document, headers=headers)

    async def post(
        self, view: type[msgspec.Struct], key: Key, subresource: str, document: Document
    ) -> None:
        """Post to a subresource whose response is not read: ``pods/x/binding``."""
        await self._send("POST", path_of(kind_of(view), key, subresource), body=document)

    async def delete(
        self,
        view: type[msgspec.Struct],
        key: Key,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
        propagation: str | None = None,
        kind: Kind | None = None,
    ) -> None:
        """Delete an object; with ``uid`` or ``version``, only that object, only that version."""
        options: Document = {}
        required = {"uid": uid, "resourceVersion": version}
        if preconditions := {name: value for name, value in required.items() if value}:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        await self._send("DELETE", path_of(kind or kind_of(view), key), body=options or None)

    async def request(
        self, method: str, path: str, *, query: str = "", document: Document | None = None
    ) -> bytes:
        """Send a request to a path; return the body.  For subresources: vnc/screenshot, pause."""
        return await self._send(method, path, query, body=document)

    async def _send(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        body: Any = None,
        headers: Mapping[str, str] = _JSON,
    ) -> bytes:
        encoded = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=encoded)
        response = await self._transport.send(request)
        if response.status >= 400 or not isinstance(response.body, bytes):
            raise await _error_from(response)
        return response.body

    def _decode(self, view: type[T], body: bytes) -> T:
        try:
            decoded = read(view, body)
        except UNREADABLE as error:
            raise InternalError(f"the server's answer is no {view.__name__}: {error}") from error
        if self._observe is not None:
            self._reader.responses.put(view, body, decoded)
            self._observe(decoded)
        return decoded


def path_of(kind: Kind, key: Key, subresource: str = "") -> str:
    """Return the path of an object, or of the collection if the key's name is empty.

    Raises BadRequest for a name with path separators, as client-go does.
    """
    for step in key:
        if faults := path_segment_faults(step):
            raise BadRequest(f'invalid resource name "{step}": [{", ".join(faults)}]')
    if subresource and not key.name:
        raise BadRequest("resource name may not be empty")
    parts = ["/apis" if kind.group else "/api", kind.served_api_version]
    if key.namespace:
        parts += ["namespaces", key.namespace]
    parts.append(kind.plural)
    if key.name:
        parts.append(key.name)
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _query(**values: str) -> str:
    return urlencode({name: value for name, value in values.items() if value})


def _document(kind: Kind, source: Document | msgspec.Struct) -> Document:
    built = msgspec.to_builtins(source) if isinstance(source, msgspec.Struct) else dict(source)
    metadata = built.get("metadata") or {}
    return {"apiVersion": kind.served_api_version, "kind": kind.name, **built, "metadata": metadata}


async def _error_from(response: Response) -> ApiError:
    body = response.body
    if not isinstance(body, bytes):
        async with aclosing(body) as chunks:
            body = b"".join([chunk async for chunk in chunks])
    return error_from(body, response.status)
