"""DNS wire format of queries and answers.  No I/O; the only user of dnslib.

Input of guests is limited here before the library sees it: one question with an uncompressed name,
and at most an EDNS0 record behind it. So nothing can nest or repeat.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import dnslib
from dnslib.label import DNSBuffer

from corral.node.dns.records import Answer, Code, Name, Record, Soa, Srv, Type, is_name

HEADER: Final = struct.Struct("!6H")
MAX_QUERY_BYTES: Final = 1024
"""A question takes 271 octets at most; the rest is for EDNS0 options such as cookies."""
MIN_UDP_BYTES: Final = 512
MAX_UDP_BYTES: Final = 1232
"""The limit of UDP without EDNS0 (RFC 1035), and the size that is not fragmented (DNS flag day
2020)."""
MAX_TCP_BYTES: Final = 65535
CLASS_IN: Final = 1
"""The class of the Internet."""

_QR, _TC, _RD, _RA, _CD = 0x8000, 0x0200, 0x0100, 0x0080, 0x0010
_AA = 0x0400
_OPCODE = 0x7800
ROOT_OPT: Final = b"\x00\x00\x29"
_DO: Final = 0x8000
_ADDRESS_TYPES: Final = (Type.A, Type.AAAA, Type.CNAME)
_SECTION_COUNTS: Final = ((1, 0, 0, 0), (1, 0, 0, 1))
_MAX_LABEL_BYTES: Final = 63
_MAX_NAME_BYTES: Final = 254
"""Octets of a name without the root label."""
_TYPE_AND_CLASS: Final = 4
_MAX_POINTER: Final = 0x3FFF
"""The largest offset of a compression pointer, 14 bits (RFC 1035 4.1.4)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question with the client's options."""

    id_: int
    question: bytes
    """Name, type and class as received: an answer repeats them unchanged."""
    name: Name
    type: int
    type_class: int
    recursion_desired: bool = True
    checking_disabled: bool = False
    size: int = MIN_UDP_BYTES
    """The largest datagram that the client accepts."""
    extended: bool = False
    """True if the client uses EDNS0, which the answer then has, too."""
    dnssec: bool = False


class MalformedQuery(Exception):
    """A packet that is not a valid query; ``reply`` is the error response, empty for none."""

    def __init__(self, reply: bytes = b"") -> None:
        super().__init__("not a query")
        self.reply = reply


def decode_query(packet: bytes) -> Query:
    """Decode a query.  Raises Malformed."""
    if len(packet) < HEADER.size:
        raise MalformedQuery
    id_, flags, *counts = HEADER.unpack_from(packet)
    if flags & _QR:
        raise MalformedQuery
    if flags & _OPCODE:
        raise MalformedQuery(_header_only(id_, flags, Code.NOTIMP))
    try:
        end = _question_end(packet, counts)
        record: Any = dnslib.DNSRecord.parse(packet)
    except _decode_errors() as error:
        raise MalformedQuery(_header_only(id_, flags, Code.FORMERR)) from error
    query = Query(
        id_=id_,
        question=packet[HEADER.size : end],
        name=_name(record.q.qname),
        type=record.q.qtype,
        type_class=record.q.qclass,
        recursion_desired=bool(flags & _RD),
        checking_disabled=bool(flags & _CD),
    )
    return _with_edns(query, record.ar[0]) if record.ar else query


def _decode_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that dnslib raises for malformed packets.

    A function, because the package is executed with its first use: the first query.
    """
    return (dnslib.DNSError, LookupError, RecursionError, ValueError, struct.error)


def _question_end(packet: bytes, counts: Sequence[int]) -> int:
    """Return the end of the question; raise ValueError or IndexError for other content.

    One more record may follow, EDNS0's, whose name is the root: no name is a pointer.
    """
    if tuple(counts) not in _SECTION_COUNTS or len(packet) > MAX_QUERY_BYTES:
        raise ValueError("not one question")
    offset = HEADER.size
    while length := packet[offset]:
        offset += 1 + length
        if length > _MAX_LABEL_BYTES or offset - HEADER.size > _MAX_NAME_BYTES:
            raise ValueError("a pointer, or too long a name")
    offset += 1 + _TYPE_AND_CLASS
    if offset > len(packet) or (counts[3] and not packet.startswith(ROOT_OPT, offset)):
        raise ValueError("truncated, or followed by other records")
    return offset


def _with_edns(query: Query, edns_record: Any) -> Query:
    """Return the query with its EDNS0 options (RFC 6891).  Raises Malformed for a later version."""
    size = min(max(edns_record.edns_len, MIN_UDP_BYTES), MAX_UDP_BYTES)
    query = replace(query, extended=True, size=size, dnssec=bool(edns_record.edns_do))
    if edns_record.edns_ver:
        raise MalformedQuery(
            encode_answer(query, Answer(code=Code.BADVERS, authoritative=False), MIN_UDP_BYTES)
        )
    return query


def _header_only(id_: int, flags: int, code: Code) -> bytes:
    """Return a response of a header only, to a packet that may contain anything."""
    kept_flags = flags & (_OPCODE | _RD)
    return HEADER.pack(id_, _QR | kept_flags | code, 0, 0, 0, 0)


def encode_answer(query: Query, answer: Answer, max_bytes: int) -> bytes:
    """Encode an answer in at most ``max_bytes`` octets.

    Records that do not fit are left out; if one is of the answer section, TC is set, and the client
    retries by TCP.
    """
    buffer: Any = DNSBuffer()
    buffer.names = _NameOffsets()
    buffer.append(bytes(HEADER.size))
    buffer.append(query.question)
    _add_question_name(buffer, query.name)
    available = max_bytes - (11 if query.extended else 0)
    flags = _QR | _RA | (answer.code & 0xF)
    flags |= _RD if query.recursion_desired else 0
    flags |= _AA if answer.authoritative else 0
    records = _append_records(buffer, answer.records, available)
    if records < len(answer.records):
        flags |= _TC
    authority = _append_records(buffer, answer.authority, available)
    additional = _append_records(buffer, answer.additional, available)
    if query.extended:
        buffer.append(edns_record(query, answer.code))
        additional += 1
    HEADER.pack_into(buffer.data, 0, query.id_, flags, 1, records, authority, additional)
    return bytes(buffer.data)


class _NameOffsets(dict[tuple[bytes, ...], int]):
    """Offsets of names in a packet, without those that a pointer cannot reach."""

    def __setitem__(self, name: tuple[bytes, ...], offset: int) -> None:
        if offset <= _MAX_POINTER:
            super().__setitem__(name, offset)


def _add_question_name(buffer: Any, name: Name) -> None:
    """Let later names point to the question's."""
    labels = [label.encode("latin-1") for label in name]
    offset = HEADER.size
    for index, label in enumerate(labels):
        buffer.names[tuple(labels[index:])] = offset
        offset += 1 + len(label)


def _append_records(buffer: Any, records: Iterable[Record], max_bytes: int) -> int:
    """Append records as long as they fit; return their number."""
    count = 0
    for record in records:
        end = buffer.offset
        _encode_record(record).pack(buffer)
        if buffer.offset > max_bytes:
            del buffer.data[end:]
            buffer.offset = end
            for name in [name for name, offset in buffer.names.items() if offset >= end]:
                del buffer.names[name]
            break
        count += 1
    return count


def edns_record(query: Query, code: Code = Code.NOERROR) -> bytes:
    """Return the EDNS0 record: our UDP size, and the upper bits of an extended response code."""
    flags = code >> 4 << 24 | (_DO if query.dnssec else 0)
    return ROOT_OPT + struct.pack("!HIH", MAX_UDP_BYTES, flags, 0)


def encode_query(query: Query, id_: int) -> bytes:
    """Encode a query for an upstream server."""
    flags = _RD | (_CD if query.checking_disabled else 0)
    header = HEADER.pack(id_, flags, 1, 0, 0, int(query.extended))
    return header + query.question + (edns_record(query) if query.extended else b"")


def make_query(name: Name, type_: int) -> Query:
    """Return a query of our own."""
    labels = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name)
    question = labels + struct.pack("!BHH", 0, type_, CLASS_IN)
    return Query(id_=0, question=question, name=name, type=type_, type_class=CLASS_IN)


def addresses(packet: bytes) -> list[Record]:
    """Return the addresses and aliases of an answer section; raise ValueError if malformed."""
    try:
        record: Any = dnslib.DNSRecord.parse(packet)
        found = [_decode_record(each) for each in record.rr if each.rtype in _ADDRESS_TYPES]
    except _decode_errors() as error:
        raise ValueError("not a reply") from error
    return [each for each in found if is_name(each.name) and _is_writable(each.data)]


def _is_writable(data: object) -> bool:
    """Report whether a record's data is an address, or a name that fits into a packet."""
    return isinstance(data, str) or (isinstance(data, tuple) and is_name(data))


def _decode_record(record: Any) -> Record:
    type_ = Type(record.rtype)
    data = _name(record.rdata.label) if type_ is Type.CNAME else str(record.rdata)
    return Record(_name(record.rname), type_, data, record.ttl)


def _encode_record(record: Record) -> Any:
    type_, data = record.type, record.data
    if isinstance(data, Srv):
        content = dnslib.SRV(data.priority, data.weight, data.port, _label(data.target))
    elif isinstance(data, Soa):
        times = (data.serial, data.refresh, data.retry, data.expire, data.minimum)
        content = dnslib.SOA(_label(data.server), _label(data.mailbox), times)
    elif isinstance(data, str):
        content = {Type.A: dnslib.A, Type.AAAA: dnslib.AAAA, Type.TXT: dnslib.TXT}[type_](data)
    else:
        content = {Type.NS: dnslib.NS, Type.CNAME: dnslib.CNAME, Type.PTR: dnslib.PTR}[type_](
            _label(data)
        )
    return dnslib.RR(_label(record.name), type_, ttl=record.ttl_seconds, rdata=content)


def _label(name: Name) -> Any:
    return dnslib.DNSLabel([label.encode("latin-1") for label in name])


def _name(label: Any) -> Name:
    return tuple(each.decode("latin-1") for each in label.label)
