"""What ``kubectl get`` prints of objects whose definition says so."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from corral.api.kind import Column
from corral.api.kinds.crd.defaults import AGE_COLUMN
from corral.api.kinds.crd.jsonpath import compile_path
from corral.api.object import Document

Cell = str | int | None


def columns_of(version: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of one version of a definition: by default the age alone."""
    return tuple(_column(each) for each in version.get("additionalPrinterColumns") or [AGE_COLUMN])


def _column(told: Mapping[str, Any]) -> Column:
    return Column(
        name=told["name"],
        type=told["type"],
        format=told.get("format", ""),
        description=told.get("description") or _description(told["jsonPath"]),
        priority=told.get("priority", 0),
        cell=_reader(told["type"], told["jsonPath"]),
    )


def _description(path: str) -> str:
    return f"Custom resource definition column (in JSONPath format): {path}"


def _reader(kind: str, path: str) -> Callable[[Document], Cell]:
    find = compile_path(path).find
    show = _SHOWN[kind]

    def cell(document: Document) -> Cell:
        found = find(document)
        return show(found) if found else None

    return cell


def _text(found: list[Any]) -> str:
    return " ".join(map(_word, found))


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _whole(found: list[Any]) -> Cell:
    value = found[0]
    return int(value) if _is_number(value) else None


def _number(found: list[Any]) -> Cell:
    value = found[0]
    return value if _is_number(value) else None


def _truth(found: list[Any]) -> Cell:
    return found[0] if isinstance(found[0], bool) else None


def _date(found: list[Any]) -> Cell:
    return found[0] if isinstance(found[0], str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHOWN: Mapping[str, Callable[[list[Any]], Cell]] = {
    "string": _text,
    "integer": _whole,
    "number": _number,
    "boolean": _truth,
    "date": _date,
}
