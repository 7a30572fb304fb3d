"""What a server of the outside world replied.  Pure.

A reply is passed on as it came, whatever types of records are in it: only its head, its question,
its times and its EDNS0 record are looked at, and no name in it is read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from corral.node.dns.codec import HEADER, Query, option
from corral.node.dns.records import Code

LONGEST_SECONDS = 300
"""How long a reply is remembered at most: names of the outside move, too."""
LARGEST = 16384
"""Octets of a reply by TCP."""

_REPLY, _TRUNCATED, _DESIRED, _AVAILABLE = 0x8000, 0x0200, 0x0100, 0x0080
_FIXED: Final = struct.Struct("!HHIH")
_OPT: Final = 41
_SOA: Final = 6
_TTL_AT: Final = 4
_MOST_SECONDS: Final = 2**31 - 1


class _Piece(NamedTuple):
    """A record: where it begins and where its fixed part does, and its place in the packet."""

    start: int
    fixed: int
    end: int
    section: int
    type: int
    ttl: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply without its EDNS0 record, and the places of its times."""

    packet: bytes
    code: int
    truncated: bool
    ttls: tuple[tuple[int, int], ...]
    """(place, seconds) of each record."""
    lifetime: int
    """Seconds for which it may be given to others, 0 for not at all."""

    def packet_for(self, query: Query, age: int, largest: int) -> bytes:
        """What is sent to somebody who asks the same, ``age`` seconds later."""
        packet = bytearray(self.packet)
        _, flags, *counts = HEADER.unpack_from(packet)
        for at, ttl in self.ttls:
            struct.pack_into("!I", packet, at, max(0, ttl - age))
        flags = (flags & ~_DESIRED) | _AVAILABLE | (_DESIRED if query.recursion_desired else 0)
        tail = option(query) if query.extended else b""
        if len(packet) + len(tail) > largest:
            del packet[HEADER.size + len(query.question) :]
            flags, counts = flags | _TRUNCATED, [1, 0, 0, 0]
        packet[HEADER.size : HEADER.size + len(query.question)] = query.question
        packet += tail
        counts[3] += bool(tail)
        HEADER.pack_into(packet, 0, query.number, flags, *counts)
        return bytes(packet)


def read_reply(packet: bytes, query: Query, number: int) -> Reply:
    """The reply to a query that was sent with a number; raises ValueError where it is none."""
    try:
        got, flags, *counts = HEADER.unpack_from(packet)
        end = HEADER.size + len(query.question)
        if got != number or not flags & _REPLY or counts[0] != 1:
            raise ValueError("not a reply to this")
        if not _is_same(packet[HEADER.size : end], query.question):
            raise ValueError("another question")
        pieces = list(_pieces(packet, end, counts[1:]))
    except (IndexError, struct.error) as error:
        raise ValueError("cut short") from error
    code = flags & 0xF
    for piece in pieces:
        if piece.type == _OPT:
            # What stands behind it, if anything, is additional: nobody needs it.
            code |= piece.ttl >> 24 << 4
            packet = packet[: piece.start]
            break
    kept = [piece for piece in pieces if piece.end <= len(packet)]
    additional = sum(piece.section == 2 for piece in kept)
    head = HEADER.pack(number, flags, 1, counts[1], counts[2], additional)
    truncated = bool(flags & _TRUNCATED)
    return Reply(
        packet=head + packet[HEADER.size :],
        code=code,
        truncated=truncated,
        ttls=tuple((piece.fixed + _TTL_AT, piece.ttl) for piece in kept),
        lifetime=0 if truncated else _lifetime(packet, code, kept),
    )


def _is_same(asked: bytes, ours: bytes) -> bool:
    """Whether two questions differ in the case of letters at most."""
    return asked[:-4].lower() == ours[:-4].lower() and asked[-4:] == ours[-4:]


def _pieces(packet: bytes, at: int, counts: list[int]) -> Iterator[_Piece]:
    for section, count in enumerate(counts):
        for _ in range(count):
            fixed = _name_end(packet, at)
            kind, _, ttl, length = _FIXED.unpack_from(packet, fixed)
            end = fixed + _FIXED.size + length
            if end > len(packet) or (kind == _OPT and section != 2):
                raise ValueError("no place for a record")
            seconds = ttl if kind == _OPT or ttl <= _MOST_SECONDS else 0
            yield _Piece(at, fixed, end, section, kind, seconds)
            at = end


def _name_end(packet: bytes, at: int) -> int:
    """Where a name ends; a pointer ends it, wherever that leads."""
    while length := packet[at]:
        if length >= 0xC0:
            return at + 2
        if length > 63:
            raise ValueError("no label")
        at += 1 + length
    return at + 1


def _lifetime(packet: bytes, code: int, pieces: list[_Piece]) -> int:
    """The shortest time of its records; an absence is remembered as its zone says (RFC 2308)."""
    if code not in (Code.OK, Code.NO_SUCH_NAME) or not pieces:
        return 0
    shortest = min(LONGEST_SECONDS, *(piece.ttl for piece in pieces))
    if code == Code.OK and pieces[0].section == 0:
        return shortest
    for piece in pieces:
        if piece.type == _SOA and piece.end - piece.fixed - _FIXED.size >= 4:
            minimum: int = struct.unpack_from("!I", packet, piece.end - 4)[0]
            return min(shortest, minimum)
    return 0
