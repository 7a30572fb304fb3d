"""Replies of upstream servers.  No I/O.

A reply is passed on unchanged, with records of any type: only its header, its question, its TTLs
and its EDNS0 record are decoded, and no name is.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from corral.node.dns.codec import HEADER, Query, edns_record
from corral.node.dns.records import Code

MAX_CACHE_SECONDS = 300
"""Upper limit of the time that a reply is cached."""
MAX_REPLY_BYTES = 16384
"""The largest reply by TCP, in octets."""

_QR, _TC, _RD, _RA = 0x8000, 0x0200, 0x0100, 0x0080
_RECORD_HEADER: Final = struct.Struct("!HHIH")
_OPT: Final = 41
_SOA: Final = 6
_TTL_OFFSET: Final = 4
_MAX_TTL_SECONDS: Final = 2**31 - 1


class _RecordSpan(NamedTuple):
    """A record: offsets of its name, its fixed fields and its end; section, type, TTL."""

    start: int
    header: int
    end: int
    section: int
    type: int
    ttl: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply without its EDNS0 record."""

    packet: bytes
    code: int
    truncated: bool
    ttls: tuple[tuple[int, int], ...]
    """Offset and value of the TTL of each record."""
    cache_seconds: int
    """Time for which it may be cached; 0 for not at all."""

    def packet_for(self, query: Query, age: int, max_bytes: int) -> bytes:
        """Return the response to a client with the same question, ``age`` seconds later."""
        packet = bytearray(self.packet)
        _, flags, *counts = HEADER.unpack_from(packet)
        for offset, ttl in self.ttls:
            struct.pack_into("!I", packet, offset, max(0, ttl - age))
        flags = (flags & ~_RD) | _RA | (_RD if query.recursion_desired else 0)
        edns = edns_record(query) if query.extended else b""
        if len(packet) + len(edns) > max_bytes:
            del packet[HEADER.size + len(query.question) :]
            flags, counts = flags | _TC, [1, 0, 0, 0]
        packet[HEADER.size : HEADER.size + len(query.question)] = query.question
        packet += edns
        counts[3] += bool(edns)
        HEADER.pack_into(packet, 0, query.id_, flags, *counts)
        return bytes(packet)


def decode_reply(packet: bytes, query: Query, id_: int) -> Reply:
    """Decode the reply to a query with this ID; raise ValueError if it is not one."""
    try:
        received_id, flags, *counts = HEADER.unpack_from(packet)
        end = HEADER.size + len(query.question)
        if received_id != id_ or not flags & _QR or counts[0] != 1:
            raise ValueError("not a reply to this")
        if not _is_same(packet[HEADER.size : end], query.question):
            raise ValueError("another question")
        spans = list(_record_spans(packet, end, counts[1:]))
    except (IndexError, struct.error) as error:
        raise ValueError("truncated") from error
    code = flags & 0xF
    for span in spans:
        if span.type == _OPT:
            # Records behind it are of the additional section, which may be dropped.
            code |= span.ttl >> 24 << 4
            packet = packet[: span.start]
            break
    kept = [span for span in spans if span.end <= len(packet)]
    additional = sum(span.section == 2 for span in kept)
    new_header = HEADER.pack(id_, flags, 1, counts[1], counts[2], additional)
    truncated = bool(flags & _TC)
    return Reply(
        packet=new_header + packet[HEADER.size :],
        code=code,
        truncated=truncated,
        ttls=tuple((span.header + _TTL_OFFSET, span.ttl) for span in kept),
        cache_seconds=0 if truncated else _cache_seconds(packet, code, kept),
    )


def _is_same(received: bytes, sent: bytes) -> bool:
    """Report whether two questions are equal except for the case of letters."""
    return received[:-4].lower() == sent[:-4].lower() and received[-4:] == sent[-4:]


def _record_spans(packet: bytes, offset: int, counts: list[int]) -> Iterator[_RecordSpan]:
    for section, count in enumerate(counts):
        for _ in range(count):
            header = _name_end(packet, offset)
            type_, _, ttl, length = _RECORD_HEADER.unpack_from(packet, header)
            end = header + _RECORD_HEADER.size + length
            if end > len(packet) or (type_ == _OPT and section != 2):
                raise ValueError("no place for a record")
            seconds = ttl if type_ == _OPT or ttl <= _MAX_TTL_SECONDS else 0
            yield _RecordSpan(offset, header, end, section, type_, seconds)
            offset = end


def _name_end(packet: bytes, offset: int) -> int:
    """Return the end of a name, at its first pointer; pointers are not followed."""
    while length := packet[offset]:
        if length >= 0xC0:
            return offset + 2
        if length > 63:
            raise ValueError("no label")
        offset += 1 + length
    return offset + 1


def _cache_seconds(packet: bytes, code: int, spans: list[_RecordSpan]) -> int:
    """Return the smallest TTL; that of a negative answer by its SOA (RFC 2308)."""
    if code not in (Code.NOERROR, Code.NXDOMAIN) or not spans:
        return 0
    shortest = min(MAX_CACHE_SECONDS, *(span.ttl for span in spans))
    if code == Code.NOERROR and spans[0].section == 0:
        return shortest
    for span in spans:
        if span.type == _SOA and span.end - span.header - _RECORD_HEADER.size >= 4:
            minimum: int = struct.unpack_from("!I", packet, span.end - 4)[0]
            return min(shortest, minimum)
    return 0
