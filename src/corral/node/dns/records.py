"""What a name server answers, apart from how it is written on the wire.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

Name = tuple[str, ...]
"""A name's labels, first one first, without the root.  A label holds the octets of the wire as
characters of the same number, so that none is lost and none is special."""

TTL_SECONDS = 5
"""How long an answer may be remembered (CoreDNS' default for a cluster): members come and go."""


class Type(IntEnum):
    """Types of records that a cluster has (RFC 1035, 2782, 3596)."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33


class Code(IntEnum):
    """What became of a query (RFC 1035, 6891)."""

    OK = 0
    MALFORMED = 1
    FAILED = 2
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5
    BAD_VERSION = 16


@dataclass(frozen=True, slots=True)
class Server:
    """Where a port of a service is (SRV); every one is as good as any other."""

    port: int
    target: Name
    priority: int = 0
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Authority:
    """Whose names these are (SOA); ``minimum`` is how long an absence may be remembered."""

    server: Name
    mailbox: Name
    serial: int
    refresh: int = 7200
    retry: int = 1800
    expire: int = 86400
    minimum: int = TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """One record of class IN: an address or a text, a name, or more."""

    name: Name
    type: Type
    data: str | Name | Server | Authority
    ttl_seconds: int = TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a question."""

    code: Code = Code.OK
    records: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    authoritative: bool = True


def name_of(text: str) -> Name:
    """The labels of a name as people write it, with or without the last dot."""
    return tuple(text.rstrip(".").split(".")) if text.rstrip(".") else ()


def lowered(name: Name) -> Name:
    """The form in which names are compared: only ASCII letters have two cases (RFC 4343)."""
    return tuple(
        label.lower() if label.isascii() else label.encode("latin-1").lower().decode("latin-1")
        for label in name
    )


def is_name(name: Name) -> bool:
    """Whether a name fits into a packet: labels of 1 to 63 octets, 255 in all (RFC 1035)."""
    try:
        sizes = [len(label.encode("latin-1")) for label in name]
    except UnicodeEncodeError:
        return False
    return all(1 <= size <= 63 for size in sizes) and sum(sizes) + len(sizes) < 255
