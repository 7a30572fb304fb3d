"""Audit events of requests and responses (audit.k8s.io/v1 Event).  Pure."""

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

MAX_CONTENT_BYTES: Final = 1 << 20
"""A larger body is omitted, with the annotation ``TRUNCATED``."""
MAX_TEXT_CHARACTERS: Final = 1024
"""Limit of texts that clients choose: user agents, names."""
MAX_URI_CHARACTERS: Final = 8 << 10
"""Limit of a URI: selectors may be long, and anonymous clients may send them, too."""
TRUNCATED: Final = "audit.k8s.io/truncated"

_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Identified(msgspec.Struct):
    """The identity of an object."""

    metadata: _Metadata


def of_request(
    request: Request, user: User | None, verb: str, parsed_route: Route | None, level: str
) -> dict[str, Any]:
    """Return the event of a received request, without its body."""
    uri = f"{request.path}?{request.query}" if request.query else request.path
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": level,
        "auditID": random_uuid(),
        "requestURI": uri[:MAX_URI_CHARACTERS],
        "verb": verb,
        "user": user_info(user) if user is not None else {},
    }
    if request.address:
        event["sourceIPs"] = [request.address]
    if agent := request.headers.get("user-agent"):
        event["userAgent"] = agent[:MAX_TEXT_CHARACTERS]
    if parsed_route is not None:
        event["objectRef"] = _reference(parsed_route)
    return event


def _reference(parsed_route: Route) -> dict[str, str]:
    event = {
        "resource": parsed_route.plural,
        "namespace": parsed_route.namespace,
        "name": parsed_route.name,
        "apiGroup": parsed_route.group,
        "apiVersion": parsed_route.version,
        "subresource": parsed_route.subresource,
    }
    return {name: value for name, value in event.items() if value}


def add_created_name(document: dict[str, Any], request: Request, response: Response) -> None:
    """Add the name of a created object to the event: the path of a create has none.

    A response has generated names, too; for an error the name in the request is used.
    """
    reference = document.get("objectRef", {})
    if document["verb"] != "create" or "name" in reference:
        return
    for source in (response, request) if response.status < 300 else (request,):
        metadata = _identity(source)
        if metadata.name:
            reference["name"] = metadata.name[:MAX_TEXT_CHARACTERS]
            if metadata.uid and source is response:
                reference["uid"] = metadata.uid
            return


def _identity(source: Request | Response) -> _Metadata:
    body = source.body
    if not isinstance(body, bytes) or not body:
        return _Metadata()
    try:
        return decode_as(body, _Identified).metadata
    except msgspec.DecodeError:
        pass  # it may be YAML or protobuf
    try:
        return msgspec.convert(_read(body, source), _Identified).metadata
    except msgspec.ValidationError:
        return _Metadata()


def status_of(response: Response) -> dict[str, Any]:
    """Return a response's code, and the status of an error."""
    event: dict[str, Any] = {"metadata": {}}
    if response.status >= 400 and isinstance(response.body, bytes):
        status_document = _json(response.body)
        if isinstance(status_document, dict) and status_document.get("kind") == "Status":
            event |= {
                name: status_document[name]
                for name in ("status", "message", "reason", "details")
                if status_document.get(name)
            }
    return event | {"code": response.status}


def add_content(
    document: dict[str, Any], name: str, source: Request | Response, *, trim: bool
) -> None:
    """Add a body to the event, unless it is too large.

    ``trim``: without ``metadata.managedFields``.
    """
    body = source.body
    assert isinstance(body, bytes)
    if len(body) > MAX_CONTENT_BYTES:
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
        return None  # a malformed body, which the server rejected


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
