"""Conversion from OpenAPI v3 to v2 (Swagger).

What v2 cannot express is left open, as the real server does: a client that validates by it must not
refuse an object that the server accepts.
"""

from collections.abc import Iterable
from typing import Any, Final

from corral.api.object import Document
from corral.api.openapi.names import GVK
from corral.api.types import Schema

_V2_REFERENCE: Final = "#/definitions/"
_V3_REFERENCE: Final = "#/components/schemas/"
_V3_ONLY: Final = frozenset(("allOf", "anyOf", "default", "not", "nullable", "oneOf"))
_CLOSING_KEYWORDS: Final = frozenset(("type", "items", "properties"))
"""Keywords that clients of v2 take for complete."""
_SCALARS: Final = ("string", "number", "integer")


def schema(v3: Schema) -> Schema:
    """Convert a schema."""
    if GVK in v3 and v3.get("x-kubernetes-preserve-unknown-fields"):
        # Clients would refuse fields besides the declared ones.
        return {"type": "object", GVK: v3[GVK]}
    v2: Schema = {
        word: _converted(word, value) for word, value in v3.items() if word not in _V3_ONLY
    }
    match v3:
        case {"allOf": [{"$ref": str()} as only]}:
            return schema(only) | v2
        case {"oneOf": choices} if all(each.get("type") in _SCALARS for each in choices):
            v2["type"] = "string"  # clients accept any scalar for it
    if v3.get("nullable") or v3.get("x-kubernetes-preserve-unknown-fields"):
        v2 = {word: value for word, value in v2.items() if word not in _CLOSING_KEYWORDS}
    if v2.get("type") == "array" and "items" not in v2:
        del v2["type"]
    if "required" in v2:
        inner = v3.get("properties", {})
        required = [name for name in v2.pop("required") if not inner.get(name, {}).get("nullable")]
        v2 |= {"required": required} if required else {}
    return v2


def _converted(word: str, value: Any) -> Any:
    match word, value:
        case "$ref", str():
            return value.replace(_V3_REFERENCE, _V2_REFERENCE)
        case "properties", dict():
            return {name: schema(inner) for name, inner in value.items()}
        case (("items" | "additionalProperties"), dict()):
            return schema(value)
        case _:
            return value


def path(item: Document) -> Document:
    """Convert the operations of a path."""
    return {
        method: [_parameter(each) for each in value]
        if method == "parameters"
        else _operation(value)
        for method, value in item.items()
    }


def _operation(v3: Document) -> Document:
    v2 = {word: value for word, value in v3.items() if word != "requestBody"}
    parameters = [_parameter(each) for each in v3.get("parameters", ())]
    v2["produces"] = _media_types(v3["responses"].values())
    v2["consumes"] = ["*/*"]
    if (body := v3.get("requestBody")) is not None:
        content = body["content"]
        sent_schema = next(iter(content.values()))["schema"]
        sent = {"name": "body", "in": "body", "schema": schema(sent_schema)}
        parameters.insert(0, sent | ({"required": True} if body.get("required") else {}))
        v2["consumes"] = list(content)
    v2["parameters"] = parameters
    v2["responses"] = {code: _response(response) for code, response in v3["responses"].items()}
    return v2


def _media_types(responses: Iterable[Document]) -> list[str]:
    return list(
        dict.fromkeys(media for response in responses for media in response.get("content", ()))
    )


def _parameter(v3: Document) -> Document:
    v2 = {word: value for word, value in v3.items() if word != "schema"}
    return v2 | {"type": v3["schema"]["type"], "uniqueItems": True}


def _response(v3: Document) -> Document:
    content = v3.get("content", {})
    schemas = [each["schema"] for each in content.values() if "schema" in each]
    v2 = {"description": v3["description"]}
    return v2 | {"schema": schema(schemas[0])} if schemas else v2
