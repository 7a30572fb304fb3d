"""``serviceaccounts/token``: creates tokens of ServiceAccounts (authentication.k8s.io/v1)."""

import msgspec

from corral.api.encoding import encode
from corral.api.errors import BadRequest, Cause, Details, Invalid, NotFound
from corral.api.kind import at
from corral.api.kinds.causes import invalid, too_many
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.server.authn.service_accounts import BINDINGS, ISSUER
from corral.server.registry.rest import Rest
from corral.server.request import body, query
from corral.server.request.call import Call, json_response, storage
from corral.server.strategy import object_meta

DEFAULT_SECONDS = 3600
"""Lifetime of a token whose request names none."""
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
MAX_AUDIENCES = 16
MAX_AUDIENCE_LENGTH = 256
KIND = "TokenRequest"
API_VERSION = "authentication.k8s.io/v1"

_GROUP = API_VERSION.partition("/")[0]
_SECONDS = "spec.expirationSeconds"


class BoundObject(msgspec.Struct, omit_defaults=True):
    """A BoundObjectReference: the token is valid as long as this object exists."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    name: str = ""
    uid: str = ""


class TokenRequestSpec(msgspec.Struct):
    """Spec of a TokenRequest."""

    audiences: list[str] | None = None
    seconds: int | None = msgspec.field(name="expirationSeconds", default=None)
    bound: BoundObject | None = msgspec.field(name="boundObjectRef", default=None)


async def answer(rest: Rest, call: Call) -> Response:
    """Create a token.  Raises NotFound, BadRequest, Conflict and Invalid."""
    dry = query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    spec = _parse(await rest.reviewers.admit_posted(call, body.read_as(call, API_VERSION, KIND)))
    account = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key).document()
    _check(spec)
    spec.seconds = DEFAULT_SECONDS if spec.seconds is None else spec.seconds
    spec.audiences = spec.audiences or [ISSUER]
    bound = None if spec.bound is None else _bound(rest, call, spec.bound)
    token, expires = rest.accounts.issue(
        account, audiences=spec.audiences, seconds=spec.seconds, bound=bound
    )
    document = {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {**call.key._asdict(), "creationTimestamp": rfc3339(rest.now())},
        "spec": msgspec.to_builtins(spec),
        "status": {"token": "" if dry else token, "expirationTimestamp": rfc3339(expires)},
    }
    return json_response(encode(document), status=201)


def _parse(document: Document) -> TokenRequestSpec:
    named = document.get("apiVersion"), document.get("kind")
    if named != (API_VERSION, KIND):
        found = f"{named[1]} of {named[0]}"
        raise BadRequest(f"the body must be a {KIND} of {API_VERSION}, not {found}")
    try:
        return msgspec.convert(document.get("spec") or {}, TokenRequestSpec)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{KIND} cannot be handled: spec: {error}") from error


def _check(spec: TokenRequestSpec) -> None:
    """Raise Invalid for what Kubernetes refuses, and for audiences that make a token too long."""
    causes: list[Cause] = []
    if spec.seconds is not None and spec.seconds < MIN_SECONDS:
        fault = "may not specify a duration less than 10 minutes"
        causes.append(invalid(_SECONDS, spec.seconds, fault))
    if spec.seconds is not None and spec.seconds > MAX_SECONDS:
        fault = "may not specify a duration larger than 2^32 seconds"
        causes.append(invalid(_SECONDS, spec.seconds, fault))
    audiences = spec.audiences or []
    if len(audiences) > MAX_AUDIENCES:
        causes.append(too_many("spec.audiences", len(audiences), MAX_AUDIENCES))
    causes += [
        invalid(f"spec.audiences[{index}]", audience, "must be 1 to 256 characters")
        for index, audience in enumerate(audiences[:MAX_AUDIENCES])
        if not 0 < len(audience) <= MAX_AUDIENCE_LENGTH
    ]
    if causes:
        faults = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        details = Details(group=_GROUP, kind=KIND, causes=tuple(causes))
        raise Invalid(f'{KIND}.{_GROUP} "" is invalid: {faults}', details=details)


def _bound(rest: Rest, call: Call, reference: BoundObject) -> tuple[str, Document]:
    """Return the kind and the document of the object that a token is to be bound to."""
    kind, name = reference.kind, reference.name
    stored = BINDINGS.get(kind) if reference.api_version == "v1" else None
    if stored is None:
        raise BadRequest(
            f'cannot bind token for serviceaccount "{call.name}" to type '
            f"{reference.api_version}, Kind={kind}"
        )
    record = rest.store.latest(stored, Key("" if kind == "Node" else call.namespace, name))
    if record is None:
        raise NotFound(f'{stored} "{name}" not found', details=Details(name=name, kind=stored))
    document = record.document()
    uid = document["metadata"]["uid"]
    if reference.uid and reference.uid != uid:
        why = f"the UID in the bound object reference ({reference.uid}) does not match the UID "
        raise object_meta.conflict(
            call.kind,
            name,
            f"{why}in record. The object might have been deleted and then recreated",
        )
    if kind == "Pod" and (at(document, "spec", "serviceAccountName") or "default") != call.name:
        raise BadRequest(
            f'cannot bind token for serviceaccount "{call.name}" to pod running with different '
            "serviceaccount name."
        )
    return kind, document
