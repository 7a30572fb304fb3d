"""AdmissionReview: encoding of requests to webhooks, and decoding of responses.  Pure."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_any, encode
from corral.api.errors import ApiError
from corral.api.kind import GroupVersion, Version
from corral.api.object import Document
from corral.server.admission.dynamic.attributes import AdmissionAttributes
from corral.server.authn.token_review import user_info

GROUP: Final = "admission.k8s.io"
JSON_PATCH: Final = "JSONPatch"
MAX_RESPONSE_BYTES: Final = 3 << 20


class ReviewError(Exception):
    """An invalid response of a webhook."""


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
class ReviewResponse:
    """A webhook's response.

    status: the reason of a denial (meta/v1 Status), may be empty.
    patch: the operations of a JSON patch.
    """

    allowed: bool
    status: Document
    patch: Sequence[Any]
    warnings: Sequence[str]
    annotations: dict[str, str]


def encode_request(attr: AdmissionAttributes, version: Version, *, uid: str, review: str) -> bytes:
    """Return the encoded AdmissionReview of a request, with objects in a version of their kind.

    ``review`` is the version of AdmissionReview.
    """
    request = {
        "uid": uid,
        **request_of(attr, version),
        "object": attr.versioned(attr.document, version),
        "oldObject": attr.versioned(attr.old, version),
    }
    return encode(
        {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{review}", "request": request}
    )


def request_of(attr: AdmissionAttributes, version: Version) -> Document:
    """Return an AdmissionRequest without its objects."""
    call, shown = attr.call, attr.document or attr.old or {}
    request = {
        "kind": _kind(attr, shown, version),
        "resource": _resource(attr, version),
        "subResource": call.subresource,
        "requestKind": _kind(attr, shown, call.version),
        "requestResource": _resource(attr, call.version),
        "requestSubResource": call.subresource,
        "name": attr.name,
        "namespace": call.namespace,
        "operation": attr.operation,
        "userInfo": user_info(call.user),
        "dryRun": attr.dry_run,
        "options": attr.options,
    }
    required = {"operation", "userInfo", "dryRun", "options"}
    return {field: value for field, value in request.items() if value or field in required}


def _kind(attr: AdmissionAttributes, document: Document, version: Version) -> dict[str, str]:
    if attr.is_stored:
        kind = attr.call.kind
        return {"group": kind.group, "version": version.name, "kind": kind.name}
    group, _, name = str(document.get("apiVersion") or "").rpartition("/")
    return {"group": group, "version": name, "kind": str(document.get("kind") or "")}


def _resource(attr: AdmissionAttributes, version: Version) -> dict[str, str]:
    kind = attr.call.kind
    return {"group": kind.group, "version": version.name, "resource": kind.plural}


def decode_response(body: bytes, *, uid: str, review: str, mutating: bool) -> ReviewResponse:
    """Decode a webhook's response.  Raises ReviewError, with Kubernetes' messages."""
    try:
        review_document = msgspec.convert(decode_any(body), _Review)
    except (ApiError, msgspec.ValidationError) as error:
        fault = str(error).removeprefix("error decoding patch: ")
        raise ReviewError(f"couldn't decode the review: {fault}") from None
    if review_document.response is None:
        raise ReviewError("webhook response was absent")
    response = review_document.response
    if review == "v1":
        _check_identity(review_document, response, uid)
    patched = response.patch if mutating else None
    if review == "v1" and mutating:
        _check_patch_type(response)
    return ReviewResponse(
        allowed=response.allowed,
        status=response.status or {},
        patch=_operations(patched) if patched else (),
        warnings=response.warnings or (),
        annotations=response.audit_annotations or {},
    )


def _check_identity(review_document: _Review, response: _Response, uid: str) -> None:
    """Check that a response has the request's uid, and is an AdmissionReview."""
    if response.uid != uid:
        raise ReviewError(f'expected response.uid="{uid}", got "{response.uid}"')
    if (review_document.api_version, review_document.kind) != (f"{GROUP}/v1", "AdmissionReview"):
        group, _, version = review_document.api_version.rpartition("/")
        raise ReviewError(
            f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got "
            f"{GroupVersion(group, version)}, Kind={review_document.kind}"
        )


def _check_patch_type(response: _Response) -> None:
    if response.patch and response.patch_type is None:
        raise ReviewError("webhook returned response.patch but not response.patchType")
    if not response.patch and response.patch_type is not None:
        raise ReviewError("webhook returned response.patchType but not response.patch")
    if response.patch_type not in (None, JSON_PATCH):
        raise ReviewError(f'webhook returned invalid response.patchType of "{response.patch_type}"')


def _operations(patch: str) -> list[Any]:
    try:
        operations_list = decode_any(base64.b64decode(patch, validate=True))
    except (ApiError, ValueError) as error:
        raise ReviewError(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(operations_list, list):
        raise ReviewError("received undecodable patch in webhook response: it is no list")
    return operations_list
