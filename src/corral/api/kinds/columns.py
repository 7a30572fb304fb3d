"""Columns that several kinds print."""

from collections.abc import Callable, Sequence

from corral.api.kind import Column, at
from corral.api.object import Document

NONE = "<none>"
"""What stands where there is nothing to show, as kubectl prints it."""


def age() -> Column:
    """How long ago the object was made; the server turns the time into words."""
    return Column(
        name="Age",
        type="date",
        cell=value("metadata", "creationTimestamp"),
        description="how long ago the object was created",
    )


def created_at() -> Column:
    """When the object was made, as a time: of kinds for which kubectl knows no age."""
    return field(
        "Created At", "metadata", "creationTimestamp", description="when the object was created"
    )


def field(name: str, *path: str, description: str, priority: int = 0) -> Column:
    """The text at a path, blank where there is none."""
    return Column(name=name, cell=value(*path), description=description, priority=priority)


def number(name: str, *path: str, description: str) -> Column:
    """The number at a path, blank where there is none."""
    return Column(name=name, type="integer", cell=value(*path), description=description)


def truth(name: str, *path: str, description: str) -> Column:
    """Whether what is at a path is true, blank where there is nothing."""
    return Column(name=name, type="boolean", cell=value(*path), description=description)


def time(name: str, *path: str, description: str) -> Column:
    """How long ago the time at a path is; blank where there is none."""
    return Column(name=name, type="date", cell=value(*path), description=description)


def length(name: str, *path: str, description: str) -> Column:
    """How many items the list or map at a path has; 0 where there is none."""
    return Column(
        name=name,
        type="integer",
        cell=lambda document: len(at(document, *path) or ()),
        description=description,
    )


def count_or_blank(name: str, *path: str, description: str) -> Column:
    """The number at a path; blank where there is none of what it counts.

    KubeVirt leaves numbers that are 0 out of what it reports, so its columns stay blank.
    """
    return Column(
        name=name,
        type="integer",
        cell=lambda document: at(document, *path) or None,
        description=description,
    )


def condition(name: str, condition_type: str, *, description: str, priority: int = 0) -> Column:
    """The status of one condition, blank where there is none."""
    return Column(
        name=name,
        cell=lambda document: condition_status(document, condition_type),
        description=description,
        priority=priority,
    )


def value(*path: str) -> Callable[[Document], str | int | None]:
    """Reads what is at a path of a document."""
    return lambda document: at(document, *path)


def text(*path: str) -> Callable[[Document], str]:
    """Reads what is at a path of a document; the empty string where nothing is."""
    return lambda document: at(document, *path) or ""


def few(texts: Sequence[str], most: int = 3) -> str:
    """The first texts of a list, and how many more there are: ``a,b,c + 2 more...``."""
    shown = ",".join(texts[:most])
    return f"{shown} + {len(texts) - most} more..." if len(texts) > most else shown


def condition_status(document: Document, condition_type: str) -> str | None:
    """``True``, ``False`` or ``Unknown``; None where the condition is not there."""
    for one in at(document, "status", "conditions") or ():
        if one.get("type") == condition_type:
            status: str | None = one.get("status")
            return status
    return None
