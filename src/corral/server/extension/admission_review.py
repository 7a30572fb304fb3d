"""AdmissionReview (admission.k8s.io/v1): decoding of requests, encoding of responses.  Pure."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from corral.api.encoding import encode
from corral.api.errors import ApiError, BadRequest
from corral.api.object import Document

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The kind of the object under review, and the version that it is in."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(msgspec.Struct, frozen=True):
    """The user of the request (authentication.k8s.io UserInfo)."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The request under review; ``object`` is the object as it is to be stored."""

    uid: str
    kind: GroupVersionKind
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    object: Document | None = None
    old_object: Document | None = None
    dry_run: bool = False


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


_decode: Final = msgspec.json.Decoder(_Review).decode


def decode(body: bytes) -> AdmissionRequest:
    """Decode the request of a review.  Raises BadRequest."""
    try:
        review = _decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the body is no AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise BadRequest(
            f"the body is {review.kind} of {review.api_version}: send {KIND} of {API_VERSION}"
        )
    return review.request


def allowed(uid: str, patch: Sequence[Document] = (), warnings: Sequence[str] = ()) -> bytes:
    """Return the response that allows a request, after the operations of a JSON patch."""
    response: Document = {"uid": uid, "allowed": True}
    if patch:
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return _encoded(response, warnings)


def denied(uid: str, error: ApiError, warnings: Sequence[str] = ()) -> bytes:
    """Return the response that denies a request with an error.

    The API server writes ``admission webhook "NAME" denied the request:`` before its message, which
    messages of the embedded server have already.
    """
    status = error.status()
    status["message"] = _without_prefix(error.message)
    return _encoded({"uid": uid, "allowed": False, "status": status}, warnings)


def _without_prefix(message: str) -> str:
    head, denial, rest = message.partition(" denied the request: ")
    return rest if denial and head.startswith('admission webhook "') else message


def _encoded(response: Document, warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = list(warnings)
    return encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def difference(old: Any, new: Any, path: str = "") -> Iterator[Document]:
    """Yield the operations of a JSON patch that makes one document into another.

    Lists are replaced as a whole.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield {"op": "replace", "path": path, "value": new}
        return
    for name in old.keys() - new.keys():
        yield {"op": "remove", "path": _below(path, name)}
    for name, value in new.items():
        if name in old:
            yield from difference(old[name], value, _below(path, name))
        else:
            yield {"op": "add", "path": _below(path, name), "value": value}


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
