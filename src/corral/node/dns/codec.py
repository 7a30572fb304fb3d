"""Queries and answers as they are on the wire.  Pure, and the only door to dnslib.

Whatever a guest sends is bounded here before the library sees it: one question, whose name is
spelled out, and at most EDNS0's record behind it.  So nothing can be nested or repeated.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import dnslib
from dnslib.label import DNSBuffer

from corral.node.dns.records import Answer, Authority, Code, Name, Record, Server, Type, is_name

HEADER: Final = struct.Struct("!6H")
LONGEST_QUERY: Final = 1024
"""A question takes 271 octets at most; the rest is for options, such as cookies."""
SMALLEST: Final = 512
LARGEST_DATAGRAM: Final = 1232
"""What may come by UDP without EDNS0 (RFC 1035), and what is never split on the way (the size
that the makers of name servers agreed upon)."""
LARGEST_STREAM: Final = 65535
IN: Final = 1
"""The class of the Internet."""

_ANSWER, _TRUNCATED, _WANTED, _AVAILABLE, _UNCHECKED = 0x8000, 0x0200, 0x0100, 0x0080, 0x0010
_AUTHORITATIVE = 0x0400
_OPCODE = 0x7800
ROOT_OPT: Final = b"\x00\x00\x29"
_DNSSEC: Final = 0x8000
_FOLLOWED: Final = (Type.A, Type.AAAA, Type.CNAME)
_SHAPES: Final = ((1, 0, 0, 0), (1, 0, 0, 1))
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 254
"""Octets of a name without the root's."""
_TYPE_AND_CLASS: Final = 4
_UNREADABLE: Final = (dnslib.DNSError, LookupError, RecursionError, ValueError, struct.error)
"""What comes out of a packet that nobody should send."""
_FARTHEST: Final = 0x3FFF
"""What the 14 bits of a pointer can say (RFC 1035 4.1.4)."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question, and how its asker wants to be answered."""

    number: int
    question: bytes
    """Name, type and class as they came: an answer repeats them to the letter."""
    name: Name
    type: int
    type_class: int
    recursion_desired: bool = True
    checking_disabled: bool = False
    size: int = SMALLEST
    """The largest datagram that the asker takes."""
    extended: bool = False
    """Whether the asker speaks EDNS0, and so wants to hear it."""
    dnssec: bool = False


class Malformed(Exception):
    """A packet that is no query we answer; ``reply`` is what its sender is told, if anything."""

    def __init__(self, reply: bytes = b"") -> None:
        super().__init__("not a query")
        self.reply = reply


def read(packet: bytes) -> Query:
    """The query in a packet.  Raises Malformed."""
    if len(packet) < HEADER.size:
        raise Malformed
    number, flags, *counts = HEADER.unpack_from(packet)
    if flags & _ANSWER:
        raise Malformed
    if flags & _OPCODE:
        raise Malformed(_bare(number, flags, Code.NOT_IMPLEMENTED))
    try:
        end = _bounded(packet, counts)
        record: Any = dnslib.DNSRecord.parse(packet)
    except _UNREADABLE as error:
        raise Malformed(_bare(number, flags, Code.MALFORMED)) from error
    query = Query(
        number=number,
        question=packet[HEADER.size : end],
        name=_name(record.q.qname),
        type=record.q.qtype,
        type_class=record.q.qclass,
        recursion_desired=bool(flags & _WANTED),
        checking_disabled=bool(flags & _UNCHECKED),
    )
    return _extended(query, record.ar[0]) if record.ar else query


def _bounded(packet: bytes, counts: Sequence[int]) -> int:
    """Where the question ends; raises ValueError or IndexError where more is in a packet than that.

    One more record may follow, EDNS0's, whose name is the root: a name is nowhere a pointer.
    """
    if tuple(counts) not in _SHAPES or len(packet) > LONGEST_QUERY:
        raise ValueError("not one question")
    at = HEADER.size
    while length := packet[at]:
        at += 1 + length
        if length > _LONGEST_LABEL or at - HEADER.size > _LONGEST_NAME:
            raise ValueError("a pointer, or too long a name")
    at += 1 + _TYPE_AND_CLASS
    if at > len(packet) or (counts[3] and not packet.startswith(ROOT_OPT, at)):
        raise ValueError("cut short, or followed by something else")
    return at


def _extended(query: Query, option: Any) -> Query:
    """A query with what its EDNS0 record says (RFC 6891).  Raises Malformed for a later version."""
    size = min(max(option.edns_len, SMALLEST), LARGEST_DATAGRAM)
    query = replace(query, extended=True, size=size, dnssec=bool(option.edns_do))
    if option.edns_ver:
        raise Malformed(write(query, Answer(code=Code.BAD_VERSION, authoritative=False), SMALLEST))
    return query


def _bare(number: int, flags: int, code: Code) -> bytes:
    """An answer that repeats nothing, to a packet that may hold anything."""
    kept = flags & (_OPCODE | _WANTED)
    return HEADER.pack(number, _ANSWER | kept | code, 0, 0, 0, 0)


def write(query: Query, answer: Answer, largest: int) -> bytes:
    """The packet that answers a query, of so many octets at most.

    Records that do not fit are left off; where one of the answer's own is, TC says so, and the
    asker comes again by TCP.
    """
    buffer: Any = DNSBuffer()
    buffer.names = _Places()
    buffer.append(bytes(HEADER.size))
    buffer.append(query.question)
    _remember(buffer, query.name)
    rest = largest - (11 if query.extended else 0)
    flags = _ANSWER | _AVAILABLE | (answer.code & 0xF)
    flags |= _WANTED if query.recursion_desired else 0
    flags |= _AUTHORITATIVE if answer.authoritative else 0
    records = _append(buffer, answer.records, rest)
    if records < len(answer.records):
        flags |= _TRUNCATED
    authority = _append(buffer, answer.authority, rest)
    additional = _append(buffer, answer.additional, rest)
    if query.extended:
        buffer.append(option(query, answer.code))
        additional += 1
    HEADER.pack_into(buffer.data, 0, query.number, flags, 1, records, authority, additional)
    return bytes(buffer.data)


class _Places(dict[tuple[bytes, ...], int]):
    """Where names stand in a packet; the library points at places that no pointer can reach."""

    def __setitem__(self, name: tuple[bytes, ...], at: int) -> None:
        if at <= _FARTHEST:
            super().__setitem__(name, at)


def _remember(buffer: Any, name: Name) -> None:
    """Let later names point at the question's."""
    labels = [label.encode("latin-1") for label in name]
    at = HEADER.size
    for index, label in enumerate(labels):
        buffer.names[tuple(labels[index:])] = at
        at += 1 + len(label)


def _append(buffer: Any, records: Iterable[Record], largest: int) -> int:
    """Write records as long as there is room; answers how many."""
    count = 0
    for record in records:
        end = buffer.offset
        _record(record).pack(buffer)
        if buffer.offset > largest:
            del buffer.data[end:]
            buffer.offset = end
            for name in [name for name, at in buffer.names.items() if at >= end]:
                del buffer.names[name]
            break
        count += 1
    return count


def option(query: Query, code: Code = Code.OK) -> bytes:
    """EDNS0: what we take, and the upper bits of a code that has more than four."""
    flags = code >> 4 << 24 | (_DNSSEC if query.dnssec else 0)
    return ROOT_OPT + struct.pack("!HIH", LARGEST_DATAGRAM, flags, 0)


def ask(query: Query, number: int) -> bytes:
    """The packet that hands a query on to another server."""
    flags = _WANTED | (_UNCHECKED if query.checking_disabled else 0)
    head = HEADER.pack(number, flags, 1, 0, 0, int(query.extended))
    return head + query.question + (option(query) if query.extended else b"")


def query_for(name: Name, kind: int) -> Query:
    """A question of our own."""
    spelled = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name)
    question = spelled + struct.pack("!BHH", 0, kind, IN)
    return Query(number=0, question=question, name=name, type=kind, type_class=IN)


def addresses(packet: bytes) -> list[Record]:
    """The addresses and aliases among the answers of a reply; raises ValueError for nonsense."""
    try:
        record: Any = dnslib.DNSRecord.parse(packet)
        found = [_read_record(one) for one in record.rr if one.rtype in _FOLLOWED]
    except _UNREADABLE as error:
        raise ValueError("not a reply") from error
    return [one for one in found if is_name(one.name) and _is_writable(one.data)]


def _is_writable(data: object) -> bool:
    """Whether an address, or a name that fits into a packet."""
    return isinstance(data, str) or (isinstance(data, tuple) and is_name(data))


def _read_record(one: Any) -> Record:
    kind = Type(one.rtype)
    data = _name(one.rdata.label) if kind is Type.CNAME else str(one.rdata)
    return Record(_name(one.rname), kind, data, one.ttl)


def _record(record: Record) -> Any:
    kind, data = record.type, record.data
    if isinstance(data, Server):
        content = dnslib.SRV(data.priority, data.weight, data.port, _label(data.target))
    elif isinstance(data, Authority):
        times = (data.serial, data.refresh, data.retry, data.expire, data.minimum)
        content = dnslib.SOA(_label(data.server), _label(data.mailbox), times)
    elif isinstance(data, str):
        content = {Type.A: dnslib.A, Type.AAAA: dnslib.AAAA, Type.TXT: dnslib.TXT}[kind](data)
    else:
        content = {Type.NS: dnslib.NS, Type.CNAME: dnslib.CNAME, Type.PTR: dnslib.PTR}[kind](
            _label(data)
        )
    return dnslib.RR(_label(record.name), kind, ttl=record.ttl_seconds, rdata=content)


def _label(name: Name) -> Any:
    return dnslib.DNSLabel([label.encode("latin-1") for label in name])


def _name(label: Any) -> Name:
    return tuple(one.decode("latin-1") for one in label.label)
