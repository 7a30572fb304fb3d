"""Admission webhooks of our kinds: the defaults and the validation of the embedded server.

The API server has checked the schema of an object that is to be validated, but not yet of one that
is to be mutated: that passes unchanged where it does not fit, and is refused by the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from corral.api.encoding import copied
from corral.api.errors import ApiError, BadRequest, Cause, InternalError, TooManyRequests
from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.kinds.cdi.kinds import DATA_VOLUME
from corral.api.kinds.kubevirt.kinds import POOL, VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.admission import is_component
from corral.api.object import Document
from corral.api.request import Request, Response, User
from corral.api.schema import schema_for
from corral.api.time import rfc3339
from corral.client.client import Client
from corral.reconcile.events import Clock
from corral.server.admission.checkpoints import Checkpoints
from corral.server.admission.clone_authorization import CloneAuthorization
from corral.server.admission.instancetypes import Instancetypes
from corral.server.admission.migrations import Migrations
from corral.server.asgi import read_body, request_of, send_response
from corral.server.extension import admission_review, evictions
from corral.server.extension.admission_review import AdmissionRequest
from corral.server.extension.remote_objects import RemoteObjects, RemoteRest
from corral.server.request.call import Call, json_response, storage
from corral.server.response.errors import error_response

MUTATE_PATH: Final = "/admission/mutate"
VALIDATE_PATH: Final = "/admission/validate"
EVICT_PATH: Final = "/admission/evict"
PATHS: Final = frozenset({MUTATE_PATH, VALIDATE_PATH, EVICT_PATH})
CONTROLLERS: Final = User(name="system:serviceaccount:kubevirt:kubevirt-controller")
"""Our own controllers, as the functions of admission know them."""
MAX_REVIEWS: Final = 64
"""Reviews at once: each holds its body and the objects that it needs, some MiB at most."""
WAIT_SECONDS: Final = 9.0
"""Time that reviews wait in the queue: API servers give up after ten, by our manifests."""
_VERBS: Final[Mapping[str, str]] = {"CREATE": "create", "UPDATE": "update"}
_METADATA: Final = frozenset({"metadata"})
_PLAIN: Final = Kind(group="", plural="", versions=(), view=VIRTUAL_MACHINE_INSTANCE.view)
"""A kind whose functions do nothing."""
_REFERRING: Final = (DATA_VOLUME, POOL, VIRTUAL_MACHINE)
"""Kinds in which references to other objects are completed."""

log = structlog.get_logger()


def mutates(kind: Kind) -> bool:
    """Return whether objects of a kind are mutated."""
    return kind in _REFERRING or any(
        getattr(kind, name) is not getattr(_PLAIN, name)
        for name in ("default", "default_create", "keep")
    )


def validates(kind: Kind) -> bool:
    """Return whether objects of a kind are validated beyond their schema."""
    return kind.validate is not _PLAIN.validate


class Webhooks:
    """The webhooks, as an ASGI app.

    ``client`` reads what objects refer to; ``own`` is the user name of our controllers in the
    cluster; ``clock`` returns seconds since 1970.
    """

    def __init__(self, client: Client, own: str, clock: Clock) -> None:
        self._client = client
        self._own = own
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_REVIEWS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_of(scope, scope["method"])
        response = await self._answer(request, receive)
        assert isinstance(response.body, bytes)
        await send_response(response, response.body, send)

    async def _answer(self, request: Request, receive: Receive) -> Response:
        try:
            async with self._turn():
                body = await read_body(request, receive)
                return json_response(await self.review(request.path, body))
        except ApiError as error:
            return error_response(error)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for one of MAX_REVIEWS turns.  Raises TooManyRequests."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            why = f"corral's controllers have {MAX_REVIEWS} reviews to answer before this one"
            raise TooManyRequests(why) from None
        try:
            yield
        finally:
            self._turns.release()

    async def review(self, path: str, body: bytes) -> bytes:
        """Return the response to an AdmissionReview.  Raises BadRequest for one that is none."""
        request = admission_review.decode(body)
        evicts = path == EVICT_PATH
        call = evictions.call_of(request) if evicts else self._call(request)
        objects = RemoteObjects(self._client)
        try:
            if evicts:
                rest = RemoteRest(self._client, objects)
                return await rest.answer(lambda: evictions.review(rest, call, request))
            if path == MUTATE_PATH:
                return await objects.evaluate(lambda: self._mutate(objects, call, request))
            return await objects.evaluate(lambda: self._validate(objects, call, request))
        except ApiError as error:
            return admission_review.denied(request.uid, error, call.warnings)
        except Exception:
            log.exception("admission failed", kind=call.kind.name, name=request.name)
            failure = "corral's controllers failed at this object; their log says why"
            return admission_review.denied(request.uid, InternalError(failure))

    def _call(self, request: AdmissionRequest) -> Call:
        """Return the call under review.  Raises BadRequest for one of another kind."""
        kind = KINDS.by_kind(request.kind.group, request.kind.kind)
        version = kind.by_name.get(request.kind.version) if kind is not None else None
        if kind is None or version is None or request.operation not in _VERBS:
            raise BadRequest(
                f"this webhook has no rule for {request.operation} of {request.kind.kind} in "
                f"{request.kind.group}/{request.kind.version}"
            )
        user = self._user(request)
        component = user if user is CONTROLLERS else None
        return Call(
            request=Request(method="POST", path="", user=component),
            user=user,
            verb=_VERBS[request.operation],
            kind=kind,
            group=kind.group,
            version=version,
            namespace=request.namespace,
            name=request.name,
            subresource=request.sub_resource,
            query={},
        )

    def _user(self, request: AdmissionRequest) -> User:
        """Return the user: our component for our controllers, else one with no component's rights.

        The functions of admission know components by their names, and a ServiceAccount in any
        namespace ``kubevirt`` may have one of these: here they carry no rights.
        """
        info = request.user_info
        if info.username == self._own:
            return CONTROLLERS
        return User(name=info.username, groups=info.groups, uid=info.uid, extra=info.extra)

    async def _mutate(self, objects: RemoteObjects, call: Call, request: AdmissionRequest) -> bytes:
        sent, old = request.object or {}, request.old_object
        document = copied(sent)
        call.warnings.clear()
        if _misfits(call.kind, document):
            return admission_review.allowed(request.uid)
        created = document["metadata"].get("creationTimestamp")
        if old is None:
            # Set by the API server afterwards, but times in the status begin with it.
            document["metadata"]["creationTimestamp"] = created or rfc3339(self._clock())
            call.kind.default_create(document)
            document["metadata"]["creationTimestamp"] = created
            complete = Checkpoints(objects).creators().get(storage(call.kind))
            if complete is not None:
                complete(call, document, None)
        prepare = CloneAuthorization(objects, objects).preparers().get(storage(call.kind))
        if prepare is not None:
            prepare(call, document, old)
        if old is not None:
            call.kind.keep(document, old, _trusted_name(call.user))
        call.kind.default(document)
        if call.kind is VIRTUAL_MACHINE:
            Instancetypes(objects).admit(document, old)
        return admission_review.allowed(
            request.uid, list(admission_review.difference(sent, document))
        )

    async def _validate(
        self, objects: RemoteObjects, call: Call, request: AdmissionRequest
    ) -> bytes:
        document, old = copied(request.object or {}), request.old_object
        call.warnings.clear()
        name = document.get("metadata", {}).get("name", "")
        if causes := _misfits(call.kind, document):
            raise call.kind.invalid(name, causes)
        verdict = call.kind.validate(document, old, _trusted_name(call.user))
        if verdict.causes:
            raise call.kind.denied(name, verdict.causes, creating=old is None)
        guards = CloneAuthorization(objects, objects).guards() | Migrations(objects).guards()
        guard = guards.get(storage(call.kind))
        if guard is not None:
            guard(call, document, old)
        return admission_review.allowed(request.uid, warnings=verdict.warnings)


def _misfits(kind: Kind, document: Document) -> list[Cause]:
    """Prune a document, and return what does not fit the schema of its kind."""
    schema = schema_for(kind)
    if schema.fits(document, _METADATA):
        return []
    schema.prune(document, _METADATA)
    return schema.check(document, _METADATA)


def _trusted_name(user: User) -> str:
    """Return a user's name for functions that trust components by it; "" for a false component."""
    return "" if user is not CONTROLLERS and is_component(user.name) else user.name
