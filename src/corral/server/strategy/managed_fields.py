"""Who writes, as ``metadata.managedFields`` tells it, and what every write does to that account."""

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
"""Bytes of a subresource's name in an account."""
_UNKNOWN: Final = "unknown"


def writer(call: Call, operation: str = "Update") -> Writer:
    """Who sends a call: as they say themselves, else by the program that they use.

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
    """Why a manager cannot be called so: for its length, or for the first character."""
    if len(name.encode()) > LONGEST_NAME:
        yield too_long(field, LONGEST_NAME)
    if not name.isprintable():
        index = next(index for index, each in enumerate(name) if not each.isprintable())
        position = len(name[:index].encode())
        why = f"invalid character U+{ord(name[index]):04X} (at position {position})"
        yield invalid(field, name, why)


def _program(agent: str) -> str:
    """The beginning of a ``User-Agent``, which names the program: ``kubectl``."""
    name = "".join(filter(str.isprintable, agent.partition("/")[0]))
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def book(call: Call, document: Document, old: Document | None, now: str) -> None:
    """Write into a document's metadata who manages what of it once it is stored.

    ``old`` is what it takes the place of.  Of an object that is applied it is known already.
    """
    metadata = document["metadata"]
    sent = metadata.pop("managedFields", None)
    account = call.managed_fields
    if account is None:
        known = [] if old is None else _known(call, sent, old)
        account = updated(known, writer(call), versions_of(call.kind).comparer(old, document), now)
    if account:
        metadata["managedFields"] = account


def _known(call: Call, sent: Any, old: Document) -> list[Entry]:
    """The account before a write: what is stored, or what the client puts in its place.

    Only a write of the object itself may do so.  An empty account is kept from clients that do not
    know of it, unless they say that it shall be empty: by one empty entry or none.
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
        for cause in _faults_of(entry, f"metadata.managedFields[{index}]")
    ]
    if causes:
        raise call.kind.invalid(call.name, causes)
    return list({_whose(entry): entry for entry in sent}.values())


def _faults_of(entry: Entry, path: str) -> Iterator[Cause]:
    """What is wrong with an entry that can be read."""
    operation = entry.get("operation", "")
    if operation not in ("Apply", "Update"):
        yield invalid(f"{path}.operation", operation, "must be `Apply` or `Update`")
    yield from _faults(entry.get("manager", ""), f"{path}.manager")
    if len(entry.get("subresource", "").encode()) > LONGEST_SUBRESOURCE:
        yield too_long(f"{path}.subresource", LONGEST_SUBRESOURCE)


def _whose(entry: Entry) -> Writer:
    """Whose an entry is; of several of one writer, the last counts."""
    operation = entry["operation"]
    version = "" if operation == "Apply" else entry["apiVersion"]
    return Writer(entry.get("manager", ""), operation, version, entry.get("subresource", ""))


def _is_entry(entry: Any) -> bool:
    """Whether something that a client sent can be read as an entry of an account."""
    return (
        isinstance(entry, dict)
        and entry.get("fieldsType") == "FieldsV1"
        and bool(entry.get("apiVersion"))
        and all(isinstance(entry.get(name, ""), str) for name in _TEXTS)
        and _is_moment(entry.get("time", ""))
        and are_valid(entry.setdefault("fieldsV1", {}))
    )


def _is_moment(text: str) -> bool:
    """Whether typed clients can read a time; one that they cannot would spoil their lists."""
    try:
        return not text or bool(parse_rfc3339(text))
    except ValueError:
        return False


_TEXTS: Final = ("manager", "operation", "apiVersion", "time", "subresource")
