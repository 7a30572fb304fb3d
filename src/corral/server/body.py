"""Request bodies to documents, whatever their encoding."""

from corral.api import yaml
from corral.api.encoding import decode_json, duplicate_keys
from corral.api.errors import BadRequest, UnsupportedMedia
from corral.api.object import Document
from corral.api.protobuf import reader as protobuf
from corral.server.call import Call

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def media_type(call: Call) -> str:
    """The body's media type without parameters; JSON where the client does not say."""
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def read(call: Call) -> Document:
    """The object in the body.  Raises BadRequest, UnsupportedMedia."""
    body = call.request.body
    kind = media_type(call)
    if not body.strip():
        raise BadRequest(f"the request has no body: it must hold a {call.kind.name}")
    if kind == JSON:
        return decode_json(body, call.kind.name)
    if kind == YAML:
        return yaml.load(body)
    if kind == PROTOBUF and call.kind.native:
        return protobuf.decode(body)
    accepted = [JSON, YAML] + ([PROTOBUF] if call.kind.native else [])
    raise UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )


def faults(call: Call) -> list[str]:
    """What a strict reader holds against the body's text itself: keys that stand twice."""
    if media_type(call) != JSON:
        return []
    return [f'duplicate field "{path}"' for path in duplicate_keys(call.request.body)]
