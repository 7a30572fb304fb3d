"""A parsed request to a resource: the input of every verb."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from corral.api.apply.managers import Entry
from corral.api.errors import Details, Forbidden, NotFound
from corral.api.kind import Kind, Version
from corral.api.object import Document, Key
from corral.api.request import Request, Response, User
from corral.server.request import accept
from corral.server.request.accept import Form

JSON_HEADERS = (("content-type", "application/json"), ("cache-control", "no-cache, private"))

_OPTIONS = {"create": "CreateOptions", "patch": "PatchOptions"}


@dataclass(slots=True, kw_only=True)
class Call:
    """A user's verb on objects of a kind, and the form of the response.

    ``group`` is the path's: KubeVirt's subresources have another than their kind.  ``warnings``
    become ``Warning:`` headers of the response, also of an error.
    """

    request: Request
    user: User
    verb: str
    kind: Kind
    group: str
    version: Version
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    warnings: list[str] = field(default_factory=list)
    decoded_body: Document | None = None
    """The object in the body, if it was decoded in advance."""
    duplicate_faults: list[str] = field(default_factory=list)
    """Faults for duplicate keys in the body."""
    unknown_fields: list[str] = field(default_factory=list)
    """Paths of unknown fields in the body, if its version differs from the stored one."""
    managed_fields: list[Entry] | None = None
    """The managed fields of the object, if they are computed before mutating webhooks."""
    without_seats: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """The context in which a webhook is awaited: it releases the request's seats."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_by_component(self) -> bool:
        """True if its user is a component of this process, and none that it impersonates."""
        return self.request.is_component(self.user)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of the request's version."""
        group = self.kind.group
        return f"{group}/{self.version.name}" if group else self.version.name

    @property
    def options(self) -> str:
        """The kind of this verb's options, for errors."""
        return _OPTIONS.get(self.verb, "UpdateOptions")

    @property
    def has_protobuf(self) -> bool:
        """True if its objects have protobuf, not only their metadata."""
        return self.kind.native or self.subresource == "scale"

    @property
    def prefers_protobuf(self) -> bool:
        return accept.prefers_protobuf(
            self.request.headers.get("accept", ""), native=self.has_protobuf
        )

    @property
    def form(self) -> Form:
        return accept.form(self.request.headers.get("accept", ""), native=self.has_protobuf)

    @property
    def form_version(self) -> str:
        """The ``apiVersion`` of the form, if it is not plain."""
        return accept.form_version(self.request.headers.get("accept", ""))


Handler = Callable[[Call], Awaitable[Response]]
"""Handles calls of one kind."""
Guard = Callable[[Call, Document, Document | None], None]
"""Checks a user's right to store a document, given the previous one.  Raises Forbidden."""
Prepare = Callable[[Call, Document, Document | None], None]
"""Sets fields that depend on the user and the subresource; the last argument is the old
document."""


def storage(kind: Kind) -> str:
    """Return the resource name under which the objects of a kind are stored."""
    if kind.stored_as is None:
        return kind.resource
    group, plural = kind.stored_as
    return f"{plural}.{group}" if group else plural


def not_found(kind: Kind, name: str) -> NotFound:
    details = Details(name=name, group=kind.group, kind=kind.plural)
    return NotFound(f'{kind.resource} "{name}" not found', details=details)


def forbidden(kind: Kind, name: str, why: str) -> Forbidden:
    """Return the error of a rejected object, in the words of Kubernetes' admission."""
    details = Details(name=name, group=kind.group, kind=kind.plural)
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def json_response(body: bytes, *, status: int = 200) -> Response:
    return Response(status=status, headers=list(JSON_HEADERS), body=body)
