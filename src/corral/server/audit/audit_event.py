"""What is told of a request and its answer (audit.k8s.io/v1 Event).  Pure."""

from typing import Any, Final

import msgspec

from corral.api import yaml
from corral.api.encoding import decode_any, decode_as
from corral.api.errors import ApiError
from corral.api.protobuf import reader as protobuf
from corral.api.request import Request, Response, User
from corral.api.uid import random_uuid
from corral.server.audit.audit_policy import API_VERSION
from corral.server.authn.token_review import user_info
from corral.server.request.route import Route

LARGEST_CONTENT_BYTES: Final = 1 << 20
"""A body that is larger is left out, and that is told."""
LONGEST_TEXT: Final = 1024
"""Characters of what a client says of itself."""
LONGEST_URI: Final = 8 << 10
"""Characters of an address: selectors may be long, and those who are nobody may send them, too."""
TRUNCATED: Final = "audit.k8s.io/truncated"

_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    """What is wanted of an object to say which one it is."""

    metadata: _Metadata


def of_request(
    request: Request, user: User | None, verb: str, named: Route | None, level: str
) -> dict[str, Any]:
    """What is known of a request before it is answered; nothing that it holds."""
    uri = f"{request.path}?{request.query}" if request.query else request.path
    told: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": level,
        "auditID": random_uuid(),
        "requestURI": uri[:LONGEST_URI],
        "verb": verb,
        "user": user_info(user) if user is not None else {},
    }
    if request.address:
        told["sourceIPs"] = [request.address]
    if agent := request.headers.get("user-agent"):
        told["userAgent"] = agent[:LONGEST_TEXT]
    if named is not None:
        told["objectRef"] = _reference(named)
    return told


def _reference(named: Route) -> dict[str, str]:
    told = {
        "resource": named.plural,
        "namespace": named.namespace,
        "name": named.name,
        "apiGroup": named.group,
        "apiVersion": named.version,
        "subresource": named.subresource,
    }
    return {name: value for name, value in told.items() if value}


def name_made(document: dict[str, Any], request: Request, response: Response) -> None:
    """Say what a creation made, or was to make: its path does not.

    The answer knows names that the server has made up, too; a refusal does not, and there the
    request counts.
    """
    reference = document.get("objectRef", {})
    if document["verb"] != "create" or "name" in reference:
        return
    for source in (response, request) if response.status < 300 else (request,):
        found = _named(source)
        if found.name:
            reference["name"] = found.name[:LONGEST_TEXT]
            if found.uid and source is response:
                reference["uid"] = found.uid
            return


def _named(source: Request | Response) -> _Metadata:
    body = source.body
    if not isinstance(body, bytes) or not body:
        return _Metadata()
    try:
        return decode_as(body, _Named).metadata
    except msgspec.DecodeError:
        pass  # it may be in another format
    try:
        return msgspec.convert(_read(body, source), _Named).metadata
    except msgspec.ValidationError:
        return _Metadata()


def status_of(response: Response) -> dict[str, Any]:
    """The answer's code, and of a refusal why it was refused."""
    told: dict[str, Any] = {"metadata": {}}
    if response.status >= 400 and isinstance(response.body, bytes):
        refusal = _json(response.body)
        if isinstance(refusal, dict) and refusal.get("kind") == "Status":
            told |= {
                name: refusal[name]
                for name in ("status", "message", "reason", "details")
                if refusal.get(name)
            }
    return told | {"code": response.status}


def add_content(
    document: dict[str, Any], name: str, source: Request | Response, *, trim: bool
) -> None:
    """Tell of a body; one that is too large is told to be left out.

    ``trim``: without ``metadata.managedFields``.
    """
    body = source.body
    assert isinstance(body, bytes)
    if len(body) > LARGEST_CONTENT_BYTES:
        document.setdefault("annotations", {})[TRUNCATED] = "true"
        return
    content = _read(body, source)
    if content is None:
        return
    if trim:
        _trim(content)
    document[name] = content


def _read(body: bytes, source: Request | Response) -> Any:
    headers = dict(source.headers)
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if media == _PROTOBUF:
            return protobuf.decode(body)
        return yaml.load(body) if media.endswith("yaml") else decode_any(body)
    except ApiError:
        return None  # what cannot be read was refused, and its sender told why


def _json(body: bytes) -> Any:
    try:
        return decode_as(body, object)
    except msgspec.DecodeError:
        return None


def _trim(content: Any) -> None:
    if not isinstance(content, dict):
        return
    for each in (content, *(content.get("items") or ())):
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
