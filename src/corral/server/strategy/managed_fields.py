"""Field managers: their names, and the update of ``metadata.managedFields`` by every write."""

from collections.abc import Iterator
from typing import Any, Final

from corral.api.apply.field_sets import are_valid
from corral.api.apply.managers import Entry, Writer, updated
from corral.api.apply.versions import versions_of
from corral.api.errors import Cause
from corral.api.kinds.causes import invalid, too_long
from corral.api.object import Document
from corral.api.time import parse_rfc3339
from corral.server.request import query
from corral.server.request.call import Call

LONGEST_NAME: Final = 128
"""Bytes of a manager's name."""
LONGEST_SUBRESOURCE: Final = 256
"""Bytes of a subresource's name in an entry."""
_UNKNOWN: Final = "unknown"


def writer(call: Call, operation: str = "Update") -> Writer:
    """Return the field manager of a call: its ``fieldManager`` option, else its User-Agent.

    Raises Invalid for a name that cannot be one.
    """
    name = call.query.get("fieldManager", "")
    if name:
        fault = next(_faults(name, "fieldManager"), None)
        if fault is not None:
            raise query.bad_option(call.options, fault.field, fault.message, fault.reason)
    else:
        name = call.user.agent or _program(call.request.headers.get("user-agent", ""))
    return Writer(name or _UNKNOWN, operation, call.api_version, call.subresource)


def _faults(name: str, field: str) -> Iterator[Cause]:
    """Return the faults of a manager's name: its length, its first unprintable character."""
    if len(name.encode()) > LONGEST_NAME:
        yield too_long(field, LONGEST_NAME)
    if not name.isprintable():
        index = next(index for index, each in enumerate(name) if not each.isprintable())
        position = len(name[:index].encode())
        why = f"invalid character U+{ord(name[index]):04X} (at position {position})"
        yield invalid(field, name, why)


def _program(agent: str) -> str:
    """Return the program in a ``User-Agent``: the text before the first ``/``."""
    name = "".join(filter(str.isprintable, agent.partition("/")[0]))
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def update(call: Call, document: Document, old: Document | None, now: str) -> None:
    """Set a document's managedFields for a write over ``old``, unless they are computed already."""
    metadata = document["metadata"]
    sent = metadata.pop("managedFields", None)
    entries: list[Entry] | None = call.managed_fields
    if entries is None:
        previous = [] if old is None else _previous(call, sent, old)
        entries = updated(
            previous, writer(call), versions_of(call.kind).comparer(old, document), now
        )
    if entries:
        metadata["managedFields"] = entries


def _previous(call: Call, sent: Any, old: Document) -> list[Entry]:
    """Return the entries before a write: the stored ones, or those that the client sends.

    Only a write of the object itself may replace them.  A client that leaves the field out keeps
    them; an empty list, or a list of one empty entry, clears them.
    """
    stored: list[Entry] = old["metadata"].get("managedFields", [])
    if sent is None or sent == stored or call.subresource:
        return stored
    if sent in ([], [{}]):
        return []
    if not all(map(_is_entry, sent)):
        return stored
    causes = [
        cause
        for index, entry in enumerate(sent)
        for cause in _entry_faults(entry, f"metadata.managedFields[{index}]")
    ]
    if causes:
        raise call.kind.invalid(call.name, causes)
    return list({_writer_of(entry): entry for entry in sent}.values())


def _entry_faults(entry: Entry, path: str) -> Iterator[Cause]:
    """Return the faults of a well-formed entry."""
    operation = entry.get("operation", "")
    if operation not in ("Apply", "Update"):
        yield invalid(f"{path}.operation", operation, "must be `Apply` or `Update`")
    yield from _faults(entry.get("manager", ""), f"{path}.manager")
    if len(entry.get("subresource", "").encode()) > LONGEST_SUBRESOURCE:
        yield too_long(f"{path}.subresource", LONGEST_SUBRESOURCE)


def _writer_of(entry: Entry) -> Writer:
    """Return the writer of an entry; of several entries of one writer, the last counts."""
    operation = entry["operation"]
    version = "" if operation == "Apply" else entry["apiVersion"]
    return Writer(entry.get("manager", ""), operation, version, entry.get("subresource", ""))


def _is_entry(entry: Any) -> bool:
    """Return whether a value is a well-formed entry."""
    return (
        isinstance(entry, dict)
        and entry.get("fieldsType") == "FieldsV1"
        and bool(entry.get("apiVersion"))
        and all(isinstance(entry.get(name, ""), str) for name in _TEXTS)
        and _is_time(entry.get("time", ""))
        and are_valid(entry.setdefault("fieldsV1", {}))
    )


def _is_time(text: str) -> bool:
    """Return whether typed clients can parse a time: one bad time would fail their whole list."""
    try:
        return not text or bool(parse_rfc3339(text))
    except ValueError:
        return False


_TEXTS: Final = ("manager", "operation", "apiVersion", "time", "subresource")
