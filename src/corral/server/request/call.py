"""One request to a resource, understood: what every verb gets."""

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
    """Who wants which verb on which objects, and in what form.

    ``group`` is the one that was asked: what one does with machines has another than their kind.
    ``warnings`` become ``Warning:`` headers of the answer, whatever it is.
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
    sent: Document | None = None
    """The object in the body, where it was read before it is asked for."""
    repeated: list[str] = field(default_factory=list)
    """What is told of keys that an object of the body holds twice."""
    unknown: list[str] = field(default_factory=list)
    """Paths of what the body holds and its version has no field for, if it is not stored so."""
    account: list[Entry] | None = None
    """Who manages what of the object that is written, where that is known before it is written."""
    without_seats: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """The block in which somebody outside is asked: others have their turn meanwhile."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def api_version(self) -> str:
        """What this request's version of the kind calls itself."""
        group = self.kind.group
        return f"{group}/{self.version.name}" if group else self.version.name

    @property
    def options(self) -> str:
        """What the options of this verb are called, where one of them is refused."""
        return _OPTIONS.get(self.verb, "UpdateOptions")

    @property
    def has_protobuf(self) -> bool:
        """Whether what is told of its objects has a form in protobuf, beside their metadata."""
        return self.kind.native or self.subresource == "scale"

    @property
    def wants_protobuf(self) -> bool:
        return accept.wants_protobuf(
            self.request.headers.get("accept", ""), native=self.has_protobuf
        )

    @property
    def form(self) -> Form:
        return accept.form(self.request.headers.get("accept", ""), native=self.has_protobuf)

    @property
    def form_version(self) -> str:
        """The ``apiVersion`` of that form, if it is not plain."""
        return accept.form_version(self.request.headers.get("accept", ""))


Answer = Callable[[Call], Awaitable[Response]]
"""What answers calls of one kind."""
Guard = Callable[[Call, Document, Document | None], None]
"""Whether who calls may store such a document, in the place of an older one; raises Forbidden."""


Prepare = Callable[[Call, Document, Document | None], None]
"""Gives a document what depends on who calls and by which door; the last is what it was before."""


def storage(kind: Kind) -> str:
    """The name under which the objects of a kind are stored."""
    if kind.stored_as is None:
        return kind.resource
    group, plural = kind.stored_as
    return f"{plural}.{group}" if group else plural


def not_found(kind: Kind, name: str) -> NotFound:
    details = Details(name=name, group=kind.group, kind=kind.plural)
    return NotFound(f'{kind.resource} "{name}" not found', details=details)


def forbidden(kind: Kind, name: str, why: str) -> Forbidden:
    """The refusal of an object, in the words of Kubernetes' admission."""
    details = Details(name=name, group=kind.group, kind=kind.plural)
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def json_response(body: bytes, *, status: int = 200) -> Response:
    return Response(status=status, headers=list(JSON_HEADERS), body=body)
