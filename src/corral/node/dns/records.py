"""DNS names, records and answers, independent of the wire format."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

Name = tuple[str, ...]
"""The labels of a name, in order, without the root.  A label has the octets of the wire as
characters of the same code (latin-1)."""

TTL_SECONDS = 5
"""TTL of answers (CoreDNS' default for a cluster)."""


class Type(IntEnum):
    """Record types of a cluster (RFC 1035, 2782, 3596)."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33


class Code(IntEnum):
    """Response codes (RFC 1035, 6891)."""

    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


@dataclass(frozen=True, slots=True)
class Srv:
    """The data of an SRV record; all have the same priority and weight."""

    port: int
    target: Name
    priority: int = 0
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Soa:
    """The data of a SOA record; ``minimum`` is the TTL of negative answers."""

    server: Name
    mailbox: Name
    serial: int
    refresh: int = 7200
    retry: int = 1800
    expire: int = 86400
    minimum: int = TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """A record of class IN; its data is text (an address or TXT), a name, or structured."""

    name: Name
    type: Type
    data: str | Name | Srv | Soa
    ttl_seconds: int = TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for a question: code, records, authority and additional section."""

    code: Code = Code.NOERROR
    records: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    authoritative: bool = True


def parse_name(text: str) -> Name:
    """Parse a name in presentation format, with or without the final dot."""
    return tuple(text.rstrip(".").split(".")) if text.rstrip(".") else ()


def lowered(name: Name) -> Name:
    """Return a name for comparison: only ASCII letters have a case (RFC 4343)."""
    return tuple(
        label.lower() if label.isascii() else label.encode("latin-1").lower().decode("latin-1")
        for label in name
    )


def is_name(name: Name) -> bool:
    """Report whether a name fits into a packet: labels of 1 to 63 octets, 255 in all (RFC 1035)."""
    try:
        sizes = [len(label.encode("latin-1")) for label in name]
    except UnicodeEncodeError:
        return False
    return all(1 <= size <= 63 for size in sizes) and sum(sizes) + len(sizes) < 255
