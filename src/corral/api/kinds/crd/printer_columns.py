"""Printer columns of custom resources."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from corral.api.kind import Column
from corral.api.kinds.crd.defaults import AGE_COLUMN
from corral.api.kinds.crd.jsonpath import compile_path
from corral.api.object import Document

Cell = str | int | None


def columns_of(version: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of one version of a definition: by default the age."""
    return tuple(_column(each) for each in version.get("additionalPrinterColumns") or [AGE_COLUMN])


def _column(declared: Mapping[str, Any]) -> Column:
    return Column(
        name=declared["name"],
        type=declared["type"],
        format=declared.get("format", ""),
        description=declared.get("description") or _description(declared["jsonPath"]),
        priority=declared.get("priority", 0),
        cell=_reader(declared["type"], declared["jsonPath"]),
    )


def _description(path: str) -> str:
    return f"Custom resource definition column (in JSONPath format): {path}"


def _reader(kind: str, path: str) -> Callable[[Document], Cell]:
    find = compile_path(path).find
    show = _CELLS[kind]

    def cell(document: Document) -> Cell:
        values = find(document)
        return show(values) if values else None

    return cell


def _text(values: list[Any]) -> str:
    return " ".join(map(_scalar_text, values))


def _scalar_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _integer(values: list[Any]) -> Cell:
    value = values[0]
    return int(value) if _is_number(value) else None


def _number(values: list[Any]) -> Cell:
    value = values[0]
    return value if _is_number(value) else None


def _boolean(values: list[Any]) -> Cell:
    return values[0] if isinstance(values[0], bool) else None


def _date(values: list[Any]) -> Cell:
    return values[0] if isinstance(values[0], str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CELLS: Mapping[str, Callable[[list[Any]], Cell]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
