"""AdmissionReview: the question that a webhook is asked, and the answer that it gives.  Pure."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_any, encode
from corral.api.errors import ApiError
from corral.api.kind import GroupVersion, Version
from corral.api.object import Document
from corral.server.admission.dynamic.attributes import Act
from corral.server.authn.token_review import user_info

GROUP: Final = "admission.k8s.io"
JSON_PATCH: Final = "JSONPatch"
LARGEST_ANSWER: Final = 3 << 20


class AnswerError(Exception):
    """What a webhook answered is no review."""


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    patch: str | None = None
    patch_type: str | None = None
    status: Document | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a webhook says.

    status: why it refuses (meta/v1 Status), where it says so.
    patch: operations that change the object.
    """

    allowed: bool
    status: Document
    patch: Sequence[Any]
    warnings: Sequence[str]
    annotations: dict[str, str]


def question(act: Act, version: Version, *, uid: str, review: str) -> bytes:
    """The body that asks about an act, which is to be seen in a version of its kind.

    ``review`` is the version of AdmissionReview.
    """
    request = {
        "uid": uid,
        **request_of(act, version),
        "object": act.seen(act.document, version),
        "oldObject": act.seen(act.old, version),
    }
    return encode(
        {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{review}", "request": request}
    )


def request_of(act: Act, version: Version) -> Document:
    """An AdmissionRequest without its objects."""
    call, shown = act.call, act.document or act.old or {}
    request = {
        "kind": _kind(act, shown, version),
        "resource": _resource(act, version),
        "subResource": call.subresource,
        "requestKind": _kind(act, shown, call.version),
        "requestResource": _resource(act, call.version),
        "requestSubResource": call.subresource,
        "name": act.name,
        "namespace": call.namespace,
        "operation": act.operation,
        "userInfo": user_info(call.user),
        "dryRun": act.dry,
        "options": act.options,
    }
    told = {"operation", "userInfo", "dryRun", "options"}
    return {field: value for field, value in request.items() if value or field in told}


def _kind(act: Act, document: Document, version: Version) -> dict[str, str]:
    if act.is_stored:
        kind = act.call.kind
        return {"group": kind.group, "version": version.name, "kind": kind.name}
    group, _, told = str(document.get("apiVersion") or "").rpartition("/")
    return {"group": group, "version": told, "kind": str(document.get("kind") or "")}


def _resource(act: Act, version: Version) -> dict[str, str]:
    kind = act.call.kind
    return {"group": kind.group, "version": version.name, "resource": kind.plural}


def read(body: bytes, *, uid: str, review: str, mutating: bool) -> Answer:
    """What a webhook answered.  Raises AnswerError, in the words of Kubernetes."""
    try:
        told = msgspec.convert(decode_any(body), _Review)
    except (ApiError, msgspec.ValidationError) as error:
        fault = str(error).removeprefix("error decoding patch: ")
        raise AnswerError(f"couldn't decode the review: {fault}") from None
    if told.response is None:
        raise AnswerError("webhook response was absent")
    response = told.response
    if review == "v1":
        _require_ours(told, response, uid)
    patched = response.patch if mutating else None
    if review == "v1" and mutating:
        _require_pair(response)
    return Answer(
        allowed=response.allowed,
        status=response.status or {},
        patch=_operations(patched) if patched else (),
        warnings=response.warnings or (),
        annotations=response.audit_annotations or {},
    )


def _require_ours(told: _Review, response: _Response, uid: str) -> None:
    """It answers this question, and as a review."""
    if response.uid != uid:
        raise AnswerError(f'expected response.uid="{uid}", got "{response.uid}"')
    if (told.api_version, told.kind) != (f"{GROUP}/v1", "AdmissionReview"):
        group, _, version = told.api_version.rpartition("/")
        raise AnswerError(
            f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got "
            f"{GroupVersion(group, version)}, Kind={told.kind}"
        )


def _require_pair(response: _Response) -> None:
    if response.patch and response.patch_type is None:
        raise AnswerError("webhook returned response.patch but not response.patchType")
    if not response.patch and response.patch_type is not None:
        raise AnswerError("webhook returned response.patchType but not response.patch")
    if response.patch_type not in (None, JSON_PATCH):
        raise AnswerError(f'webhook returned invalid response.patchType of "{response.patch_type}"')


def _operations(patch: str) -> list[Any]:
    try:
        found = decode_any(base64.b64decode(patch, validate=True))
    except (ApiError, ValueError) as error:
        raise AnswerError(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(found, list):
        raise AnswerError("received undecodable patch in webhook response: it is no list")
    return found
