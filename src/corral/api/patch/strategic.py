"""Strategic merge patches: merge patches that know which lists are sets of things with a key.

Only Kubernetes' own kinds read them.  Which lists merge, and by which key, their schemas tell
(``corral.api.merge_keys``); a list of which they say nothing is replaced as a whole.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from corral.api.errors import BadRequest, shortened
from corral.api.merge_keys import PATCH_KEY, PATCH_STRATEGY
from corral.api.object import Document

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"
_DIRECTIVE = "$patch"

Schema = Mapping[str, Any]
"""A structural schema; empty for what is not known, of which no list is merged."""


class _Rule(NamedTuple):
    """A list that is merged: by the key of its objects, or as a set of plain values."""

    key: str
    items: Schema


def strategic_merge(document: Document, patch: Any, schema: Schema) -> Document:
    """The document, which is of a schema, with a strategic merge patch applied.

    Raises BadRequest where the patch is no object, or a directive in it makes no sense.
    """
    if not isinstance(patch, dict):
        raise BadRequest("invalid JSON document: a strategic merge patch must be a JSON object")
    return _merge_object(document, patch, schema)


def _merge_object(target: Any, patch: Document, schema: Schema) -> Document:
    target = target if isinstance(target, dict) else {}
    match patch.get(_DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        case "delete":
            return {}
        case unknown:
            raise BadRequest(f"unknown patch type found: {unknown}")
    merged = _retained(target, patch)
    fields: Mapping[str, Schema] = schema.get("properties") or {}
    others: Schema = schema.get("additionalProperties") or {}
    for key in _ordinary_keys(patch):
        value, present = patch.get(key), key in patch
        inner = fields.get(key, others)
        if present and value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge_object(merged.get(key), value, inner)
        elif PATCH_STRATEGY in inner and (not present or isinstance(value, list)):
            rule = _Rule(inner.get(PATCH_KEY, ""), inner["items"])
            united = _merge_list(merged.get(key), patch, key, rule)
            if united or present or key in merged:  # an order alone makes no list
                merged[key] = united
        elif present:
            merged[key] = value
    return merged


def _ordinary_keys(patch: Document) -> Iterable[str]:
    """The fields that a patch speaks of, be it only through a directive; each once."""
    names = (
        key.removeprefix(_ORDER).removeprefix(_DELETE)
        for key in patch
        if key not in (_DIRECTIVE, _RETAIN)
    )
    return dict.fromkeys(names)


def _retained(target: Document, patch: Document) -> Document:
    """The target without the fields that ``$retainKeys`` does not list."""
    if _RETAIN not in patch:
        return dict(target)
    told = patch[_RETAIN]
    keys = set(map(str, told)) if isinstance(told, list) else None
    if keys is None or not keys.issuperset(_ordinary_keys(patch)):
        raise BadRequest("invalid patch format of retainKeys")
    return {key: value for key, value in target.items() if key in keys}


def _merge_list(target: Any, patch: Document, field: str, rule: _Rule) -> list[Any]:
    old = target if isinstance(target, list) else []
    changes = patch.get(field, [])
    order = patch.get(_ORDER + field)
    if order is not None and not isinstance(order, list):
        raise BadRequest("invalid patch format of setElementOrder list")
    if not rule.key:
        merged = _merge_plain(old, changes, patch.get(_DELETE + field))
    elif any(_directive(change) == "replace" for change in changes):
        return [change for change in changes if _directive(change) is None]
    else:
        merged = _merge_keyed(old, changes, rule)
    if order is None:
        order = changes
    else:
        _check_order(changes, order, rule.key)
    return _ordered(merged, old, order, rule.key)


def _check_order(changes: list[Any], order: list[Any], key: str) -> None:
    """Everything that a patch changes or adds stands in its order too, in the same sequence."""
    places = iter([_identity(value, key) for value in order])
    kept = [each for each in changes if not _is_deleted(each)]
    if not all(_identity(each, key) in places for each in kept):  # each search goes on, not back
        patch, wanted = shortened(str(kept)), shortened(str(order))
        message = (
            f"The order in patch list:\n{patch}\n doesn't match {_ORDER.removesuffix('/')} list"
        )
        raise BadRequest(f"{message}:\n{wanted}\n")


def _merge_plain(old: list[Any], added: list[Any], removed: Any) -> list[Any]:
    if not isinstance(removed or [], list):
        raise BadRequest("invalid patch format of primitive list")
    if any(isinstance(value, dict | list) for value in added):
        raise BadRequest("invalid patch format of primitive list")
    gone = {repr(value) for value in removed or ()}
    united = {repr(value): value for value in [*old, *added] if repr(value) not in gone}
    return list(united.values())


def _merge_keyed(old: list[Any], changes: list[Any], rule: _Rule) -> list[Any]:
    key = rule.key
    for change in changes:
        if (directive := _directive(change)) not in (None, "delete"):
            _refuse(directive)
        if not isinstance(change, dict) or isinstance(change.get(key, {}), dict | list):
            told = shortened(str(change))
            raise BadRequest(f"map: {told} does not contain declared merge key: {key}")
    gone = {_identity(each, key) for each in changes if _is_deleted(each)}
    merged = [value for value in old if _identity(value, key) not in gone]
    places: dict[str, int] = {}
    for place, value in enumerate(merged):
        places.setdefault(_identity(value, key), place)
    for change in changes:
        if _is_deleted(change):
            continue
        place = places.setdefault(_identity(change, key), len(merged))
        if place == len(merged):
            merged.append({})
        merged[place] = _merge_object(merged[place], change, rule.items)
    return merged


def _ordered(merged: list[Any], old: list[Any], order: list[Any], key: str) -> list[Any]:
    """The list with the elements that the client names in the client's order.

    Those that only the server knows stay behind what they stood behind, as far as that goes.  So
    what is new comes first, as in the documentation's example of a second container.
    """
    wanted = {_identity(value, key): place for place, value in enumerate(order)}
    before = {_identity(value, key): place for place, value in enumerate(old)}
    known = [value for value in merged if _identity(value, key) in wanted]
    known.sort(key=lambda value: wanted[_identity(value, key)])
    alone = [value for value in merged if _identity(value, key) not in wanted]
    alone.reverse()  # taken from the end
    result: list[Any] = []
    for value in known:
        place = before.get(_identity(value, key), -1)
        while alone and before[_identity(alone[-1], key)] < place:
            result.append(alone.pop())
        result.append(value)
    return result + alone[::-1]


def _is_deleted(change: Any) -> bool:
    return bool(_directive(change) == "delete")


def _directive(change: Any) -> Any:
    """What an element of a list in a patch says is to be done with it; None where it does not."""
    return change.get(_DIRECTIVE) if isinstance(change, dict) else None


def _refuse(directive: Any) -> NoReturn:
    """Raises BadRequest for a directive that means nothing in a list."""
    if directive == "merge":
        raise BadRequest("merging lists cannot yet be specified in the patch")
    raise BadRequest(f"unknown patch type found: {shortened(str(directive))}")


def _identity(value: Any, key: str) -> str:
    """What tells elements of a list apart: the value under their key, or the plain value."""
    return repr(value.get(key) if key and isinstance(value, dict) else value)
