"""From OpenAPI v3 to v2 (Swagger): the same facts, in the words of the older standard.

What the older one cannot say is left open rather than said wrongly, as the real server does: a
client that checks objects by it must refuse none that the server takes.
"""

from collections.abc import Iterable
from typing import Any, Final

from corral.api.object import Document
from corral.api.openapi.names import GVK
from corral.api.types import Schema

_OLD: Final = "#/definitions/"
_NEW: Final = "#/components/schemas/"
_ONLY_NEW: Final = frozenset(("allOf", "anyOf", "default", "not", "nullable", "oneOf"))
_OPEN: Final = frozenset(("type", "items", "properties"))
"""What old clients take for the whole truth about a value."""
_TEXTS: Final = ("string", "number", "integer")


def schema(new: Schema) -> Schema:
    """A schema in the words of v2."""
    if GVK in new and new.get("x-kubernetes-preserve-unknown-fields"):
        # Clients take fields that are named for all that there are.
        return {"type": "object", GVK: new[GVK]}
    old: Schema = {
        word: _translated(word, value) for word, value in new.items() if word not in _ONLY_NEW
    }
    match new:
        case {"allOf": [{"$ref": str()} as only]}:
            return schema(only) | old
        case {"oneOf": choices} if all(each.get("type") in _TEXTS for each in choices):
            old["type"] = "string"  # clients take anything that is written without braces for it
    if new.get("nullable") or new.get("x-kubernetes-preserve-unknown-fields"):
        old = {word: value for word, value in old.items() if word not in _OPEN}
    if old.get("type") == "array" and "items" not in old:
        del old["type"]
    if "required" in old:
        inner = new.get("properties", {})
        sure = [name for name in old.pop("required") if not inner.get(name, {}).get("nullable")]
        old |= {"required": sure} if sure else {}
    return old


def _translated(word: str, value: Any) -> Any:
    match word, value:
        case "$ref", str():
            return value.replace(_NEW, _OLD)
        case "properties", dict():
            return {name: schema(inner) for name, inner in value.items()}
        case (("items" | "additionalProperties"), dict()):
            return schema(value)
        case _:
            return value


def path(item: Document) -> Document:
    """The operations on one path in the words of v2."""
    return {
        method: [_parameter(each) for each in value]
        if method == "parameters"
        else _operation(value)
        for method, value in item.items()
    }


def _operation(new: Document) -> Document:
    old = {word: value for word, value in new.items() if word != "requestBody"}
    parameters = [_parameter(each) for each in new.get("parameters", ())]
    old["produces"] = _medias(new["responses"].values())
    old["consumes"] = ["*/*"]
    if (body := new.get("requestBody")) is not None:
        content = body["content"]
        shape = next(iter(content.values()))["schema"]
        sent = {"name": "body", "in": "body", "schema": schema(shape)}
        parameters.insert(0, sent | ({"required": True} if body.get("required") else {}))
        old["consumes"] = list(content)
    old["parameters"] = parameters
    old["responses"] = {code: _response(answer) for code, answer in new["responses"].items()}
    return old


def _medias(answers: Iterable[Document]) -> list[str]:
    return list(dict.fromkeys(media for answer in answers for media in answer.get("content", ())))


def _parameter(new: Document) -> Document:
    old = {word: value for word, value in new.items() if word != "schema"}
    return old | {"type": new["schema"]["type"], "uniqueItems": True}


def _response(new: Document) -> Document:
    content = new.get("content", {})
    shapes = [each["schema"] for each in content.values() if "schema" in each]
    old = {"description": new["description"]}
    return old | {"schema": schema(shapes[0])} if shapes else old
