"""Tables: what ``kubectl get`` prints, made by the server (meta/v1 Table)."""

from collections.abc import Iterable, Mapping
from typing import Any

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


def table(
    kind: Kind,
    documents: Iterable[Document],
    *,
    metadata: Mapping[str, Any],
    now: float,
    include: str = "Metadata",
) -> Document:
    """The Table of some objects; ``metadata`` is that of the list, ``now`` seconds since 1970.

    ``include`` says what stands beside the cells of a row: ``None``, ``Metadata`` or the whole
    ``Object`` (the query's ``includeObject``).  Raises BadRequest where it is anything else.
    """
    if include not in ("", "None", "Metadata", "Object"):
        raise BadRequest(
            f'includeObject: Invalid value: "{include}": must be one of None, Metadata, Object'
        )
    columns = (_NAME, *kind.columns) if kind.name_first else kind.columns
    # Custom resources leave blank what is missing; Kubernetes' own kinds say that they do not know.
    unknown_age = "<unknown>" if kind.native else None
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [
            {
                "cells": [_cell(column, document, now, unknown_age) for column in columns],
                "object": _beside(document, include),
            }
            for document in documents
        ],
    }


def partial(document: Document) -> Document:
    """The metadata of an object alone (meta/v1 PartialObjectMetadata)."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document.get("metadata", {}),
    }


def partial_list(documents: Iterable[Document], *, metadata: Mapping[str, Any]) -> Document:
    """A list of metadata alone; the real server writes null for an empty one."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "items": [partial(document) for document in documents] or None,
    }


def _definition(column: Column) -> Document:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(
    column: Column, document: Document, now: float, unknown_age: str | None
) -> str | int | None:
    value = column.cell(document)
    if column.type != "date":
        return value
    if not value:
        return column.absent or unknown_age
    try:
        moment = parse_rfc3339(str(value))
    except ValueError:
        return "<invalid>"
    return human_duration(now - moment.timestamp())


def _beside(document: Document, include: str) -> Document | None:
    if include == "None":
        return None
    return document if include == "Object" else partial(document)
