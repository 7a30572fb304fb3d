"""Server-side tables (meta/v1 Table), and partial metadata."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from corral.api.errors import BadRequest
from corral.api.kind import Column, Kind
from corral.api.object import Document
from corral.api.time import human_duration, parse_rfc3339

_NAME = Column(
    name="Name",
    cell=lambda document: document.get("metadata", {}).get("name"),
    format="name",
    description="what the object is called",
)


META: Final = "meta.k8s.io/v1"
"""The default version of Table and PartialObjectMetadata; clients may request an older one."""


class Moment(float):
    """Seconds since 1970, which a cell prints as an age."""


Cell = str | int | float | None
"""The value of a cell; a Moment until it is printed."""


def table(kind: Kind, *, metadata: Mapping[str, Any], version: str = META) -> Document:
    """Return a Table without rows; ``metadata`` is that of the list."""
    return {
        "kind": "Table",
        "apiVersion": version,
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(column, kind) for column in _columns(kind)],
    }


def cells(kind: Kind, document: Document) -> tuple[Cell, ...]:
    """Return the cells of an object's row, which are valid until the object changes."""
    return tuple([_cell(column, document, native=kind.native) for column in _columns(kind)])


def printed(cells: Iterable[Cell], now: float) -> list[Cell]:
    """Return cells as printed at a moment, in seconds since 1970."""
    return [human_duration(now - cell) if type(cell) is Moment else cell for cell in cells]


def check_include(include: str) -> None:
    """Raise BadRequest for an invalid ``includeObject`` of a query."""
    if include not in ("", "None", "Metadata", "Object"):
        raise BadRequest(
            f'includeObject: Invalid value: "{include}": must be one of None, Metadata, Object'
        )


def partial(metadata: Any, version: str = META) -> Document:
    """Return a meta/v1 PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": version,
        "metadata": metadata,
    }


def partial_list(*, metadata: Mapping[str, Any], version: str = META) -> Document:
    """Return a meta/v1 PartialObjectMetadataList without items."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": version,
        "metadata": dict(metadata),
    }


def _columns(kind: Kind) -> tuple[Column, ...]:
    return (_NAME, *kind.columns) if kind.name_first else kind.columns


def _definition(column: Column, kind: Kind) -> Document:
    # Native kinds print ages as strings, and declare them so.
    is_age = kind.native and column.type == "date"
    return {
        "name": column.name,
        "type": "string" if is_age else column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(column: Column, document: Document, *, native: bool) -> Cell:
    value = column.cell(document)
    if column.type != "date":
        return value
    if not value:
        # A missing time is blank in custom resources, <unknown> in native kinds.
        return column.absent or ("<unknown>" if native else None)
    try:
        return Moment(parse_rfc3339(str(value)).timestamp())
    except ValueError:
        return "<invalid>"
