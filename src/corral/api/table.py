"""Tables: what ``kubectl get`` prints, made by the server (meta/v1 Table)."""

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
"""The version of the forms that tell of objects; who asks for an older one gets it."""


class Moment(float):
    """Seconds since 1970, of which a cell tells how long ago they are."""


Cell = str | int | float | None
"""What stands in a cell; a Moment as long as nobody has asked."""


def table(kind: Kind, *, metadata: Mapping[str, Any], version: str = META) -> Document:
    """A Table that lacks its rows; ``metadata`` is that of the list."""
    return {
        "kind": "Table",
        "apiVersion": version,
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(column, kind) for column in _columns(kind)],
    }


def cells(kind: Kind, document: Document) -> tuple[Cell, ...]:
    """The cells of an object's row, which hold as long as the object does not change."""
    return tuple([_cell(column, document, native=kind.native) for column in _columns(kind)])


def told(cells: Iterable[Cell], now: float) -> list[Cell]:
    """Cells as they are printed at a moment, in seconds since 1970."""
    return [human_duration(now - cell) if type(cell) is Moment else cell for cell in cells]


def check_include(include: str) -> None:
    """Refuse what cannot stand beside the cells of a row (the query's ``includeObject``).

    That is ``None``, ``Metadata`` or the whole ``Object``.  Raises BadRequest.
    """
    if include not in ("", "None", "Metadata", "Object"):
        raise BadRequest(
            f'includeObject: Invalid value: "{include}": must be one of None, Metadata, Object'
        )


def partial(metadata: Any, version: str = META) -> Document:
    """The metadata of an object alone (meta/v1 PartialObjectMetadata)."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": version,
        "metadata": metadata,
    }


def partial_list(*, metadata: Mapping[str, Any], version: str = META) -> Document:
    """A list of metadata alone that lacks its items."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": version,
        "metadata": dict(metadata),
    }


def _columns(kind: Kind) -> tuple[Column, ...]:
    return (_NAME, *kind.columns) if kind.name_first else kind.columns


def _definition(column: Column, kind: Kind) -> Document:
    # Kubernetes' own kinds tell times in words, and call them so.
    is_told = kind.native and column.type == "date"
    return {
        "name": column.name,
        "type": "string" if is_told else column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(column: Column, document: Document, *, native: bool) -> Cell:
    value = column.cell(document)
    if column.type != "date":
        return value
    if not value:
        # Custom resources leave blank what is missing; Kubernetes' own kinds say they do not know.
        return column.absent or ("<unknown>" if native else None)
    try:
        return Moment(parse_rfc3339(str(value)).timestamp())
    except ValueError:
        return "<invalid>"
