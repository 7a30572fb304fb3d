"""Strategic merge patch: a merge patch that merges lists by a key.

Only native kinds support it.  Patch strategies and merge keys are in their schemas
(``corral.api.merge_keys``); a list without a strategy is replaced as a whole.
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
"""A structural schema; empty if unknown: no list is merged then."""


class _Rule(NamedTuple):
    """The way that a list is merged: by the key of its objects, or as a set of scalars."""

    key: str
    items: Schema


def strategic_merge(document: Document, patch: Any, schema: Schema) -> Document:
    """Apply a strategic merge patch to a document of a schema.

    Raises BadRequest if the patch is no object or has an invalid directive.
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
            if united or present or key in merged:  # $setElementOrder alone creates no list
                merged[key] = united
        elif present:
            merged[key] = value
    return merged


def _ordinary_keys(patch: Document) -> Iterable[str]:
    """Return the fields that a patch or a directive in it names, each once."""
    names = (
        key.removeprefix(_ORDER).removeprefix(_DELETE)
        for key in patch
        if key not in (_DIRECTIVE, _RETAIN)
    )
    return dict.fromkeys(names)


def _retained(target: Document, patch: Document) -> Document:
    """Return the target without the fields that ``$retainKeys`` does not list."""
    if _RETAIN not in patch:
        return dict(target)
    listed = patch[_RETAIN]
    keys = set(map(str, listed)) if isinstance(listed, list) else None
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
    """Require that ``$setElementOrder`` has all items of the patch, in the same sequence."""
    places = iter([_identity(value, key) for value in order])
    kept = [each for each in changes if not _is_deleted(each)]
    if not all(_identity(each, key) in places for each in kept):  # `in` consumes the iterator
        patch, listed = shortened(str(kept)), shortened(str(order))
        message = (
            f"The order in patch list:\n{patch}\n doesn't match {_ORDER.removesuffix('/')} list"
        )
        raise BadRequest(f"{message}:\n{listed}\n")


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
            shown = shortened(str(change))
            raise BadRequest(f"map: {shown} does not contain declared merge key: {key}")
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
    """Return the list with the items of the patch in the order of the patch.

    Items that only the server has stay after their predecessors, as far as possible.  New items
    come first, as in the documentation's example of a second container.
    """
    requested = {_identity(value, key): place for place, value in enumerate(order)}
    before = {_identity(value, key): place for place, value in enumerate(old)}
    patched = [value for value in merged if _identity(value, key) in requested]
    patched.sort(key=lambda value: requested[_identity(value, key)])
    others = [value for value in merged if _identity(value, key) not in requested]
    others.reverse()  # so that pop() returns the first
    result: list[Any] = []
    for value in patched:
        place = before.get(_identity(value, key), -1)
        while others and before[_identity(others[-1], key)] < place:
            result.append(others.pop())
        result.append(value)
    return result + others[::-1]


def _is_deleted(change: Any) -> bool:
    return bool(_directive(change) == "delete")


def _directive(change: Any) -> Any:
    """Return the directive in an item of a patch; None if it has none."""
    return change.get(_DIRECTIVE) if isinstance(change, dict) else None


def _refuse(directive: Any) -> NoReturn:
    """Raise BadRequest for a directive that is not supported in a list."""
    if directive == "merge":
        raise BadRequest("merging lists cannot yet be specified in the patch")
    raise BadRequest(f"unknown patch type found: {shortened(str(directive))}")


def _identity(value: Any, key: str) -> str:
    """Return the identity of a list item: the value of its key, or the scalar."""
    return repr(value.get(key) if key and isinstance(value, dict) else value)
