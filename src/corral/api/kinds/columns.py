"""Printer columns that several kinds share."""

from collections.abc import Callable, Sequence

from corral.api.kind import Column, at
from corral.api.object import Document

NONE = "<none>"
"""The text of an absent value, as kubectl prints it."""


def age() -> Column:
    """Return the column of the age; the server converts the time to a duration."""
    return Column(
        name="Age",
        type="date",
        cell=value("metadata", "creationTimestamp"),
        json_path=".metadata.creationTimestamp",
        description="how long ago the object was created",
    )


def created_at() -> Column:
    """Return the column of the creation time, for kinds that kubectl prints no age of."""
    return field(
        "Created At", "metadata", "creationTimestamp", description="when the object was created"
    )


def field(name: str, *path: str, description: str, priority: int = 0) -> Column:
    """Return a column of the text at a path, blank if there is none."""
    return Column(
        name=name,
        cell=value(*path),
        description=description,
        priority=priority,
        json_path=json_path(*path),
    )


def number(name: str, *path: str, description: str) -> Column:
    """Return a column of the number at a path, blank if there is none."""
    return Column(
        name=name,
        type="integer",
        cell=value(*path),
        description=description,
        json_path=json_path(*path),
    )


def truth(name: str, *path: str, description: str) -> Column:
    """Return a column of the boolean at a path, blank if there is none."""
    return Column(
        name=name,
        type="boolean",
        cell=value(*path),
        description=description,
        json_path=json_path(*path),
    )


def time(name: str, *path: str, description: str) -> Column:
    """Return a column of the time at a path, shown as a duration; blank if there is none."""
    return Column(
        name=name,
        type="date",
        cell=value(*path),
        description=description,
        json_path=json_path(*path),
    )


def length(name: str, *path: str, description: str) -> Column:
    """Return a column of the size of the list or map at a path; 0 if there is none."""
    return Column(
        name=name,
        type="integer",
        cell=lambda document: len(at(document, *path) or ()),
        description=description,
    )


def count_or_blank(name: str, *path: str, description: str) -> Column:
    """Return a column of the number at a path; blank if it is 0 or absent.

    KubeVirt omits zeros from its status, so its columns are blank then.
    """
    return Column(
        name=name,
        type="integer",
        cell=lambda document: at(document, *path) or None,
        description=description,
        json_path=json_path(*path),
    )


def condition(name: str, condition_type: str, *, description: str, priority: int = 0) -> Column:
    """Return a column of the status of one condition, blank if there is none."""
    return Column(
        name=name,
        cell=lambda document: condition_status(document, condition_type),
        description=description,
        priority=priority,
        json_path=f".status.conditions[?(@.type=='{condition_type}')].status",
    )


def json_path(*path: str) -> str:
    """Return the JSONPath of the value at a path."""
    return "." + ".".join(path)


def value(*path: str) -> Callable[[Document], str | int | None]:
    """Return a function that reads the value at a path of a document."""
    return lambda document: at(document, *path)


def text(*path: str) -> Callable[[Document], str]:
    """Return a function that reads the text at a path of a document; empty if there is none."""
    return lambda document: at(document, *path) or ""


def few(texts: Sequence[str], most: int = 3) -> str:
    """Return the first texts of a list, and the number of others: ``a,b,c + 2 more...``."""
    shown = ",".join(texts[:most])
    return f"{shown} + {len(texts) - most} more..." if len(texts) > most else shown


def condition_status(document: Document, condition_type: str) -> str | None:
    """Return the status of a condition, None if there is no such condition."""
    for one in at(document, "status", "conditions") or ():
        if one.get("type") == condition_type:
            status: str | None = one.get("status")
            return status
    return None
