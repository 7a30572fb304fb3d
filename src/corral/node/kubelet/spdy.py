"""SPDY/3 frames: many streams in one connection, as kubectl uses them.  Pure.

Kubernetes keeps the SPDY of 2012 alive in exec and port-forward, and carries it inside a websocket
(KEP 4006) or, before version 1.31, directly.  Its clients neither send nor honour windows, so there
are none here: the connection's own flow control does the rest.  Clients are not trusted: every
length is bounded, and violations raise SpdyError.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

VERSION = 3
LARGEST_CONTROL_BYTES = 32 * 1024
LARGEST_HEADERS_BYTES = 16 * 1024
MOST_HEADERS = 64
LARGEST_DATA_BYTES = (1 << 24) - 1

PROTOCOL_ERROR = 1
REFUSED_STREAM = 3
CANCEL = 5

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _HEADERS = 1, 2, 3, 6, 8
_FIN = 1
_CONTROL = 1 << 31
_HEAD = _TWO = struct.Struct(">II")
_ONE = struct.Struct(">I")


class SpdyError(Exception):
    """The peer does not speak SPDY/3, or exceeds a limit."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opens a stream; ``last``: and will send nothing on it."""

    stream: int
    headers: Mapping[str, str]
    last: bool


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream, perhaps a part of a frame; ``last``: the end of the stream."""

    stream: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The peer cancels a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """To be returned unchanged."""

    number: int


Frame = Opened | Data | Reset | Ping


class Reader:
    """Decodes bytes to frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._headers = zlib.decompressobj(zdict=DICTIONARY)
        self._newest = 0  # of the streams that were opened
        self._stream = 0  # of the data frame that has begun
        self._left = 0
        self._last = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that these bytes complete.  Raises SpdyError."""
        self._bytes += data
        while len(self._bytes) >= (1 if self._left else _HEAD.size):
            if self._left:
                yield self._piece()
                continue
            first, second = _HEAD.unpack_from(self._bytes)
            flags, length = second >> 24, second & 0xFFFFFF
            if first & _CONTROL:
                if (body := self._body(first, length)) is None:
                    return
                if (frame := self._control(first & 0xFFFF, flags, body)) is not None:
                    yield frame
                continue
            del self._bytes[: _HEAD.size]
            self._stream, self._left, self._last = first, length, bool(flags & _FIN)
            if not length:
                yield Data(first, b"", self._last)

    def _body(self, first: int, length: int) -> bytes | None:
        """Return the body of a control frame, once it is complete."""
        if (first & ~_CONTROL) >> 16 != VERSION:
            raise SpdyError("another version than SPDY/3")
        if length > LARGEST_CONTROL_BYTES:
            raise SpdyError("a control frame is too long")
        if len(self._bytes) < _HEAD.size + length:
            return None
        body = bytes(self._bytes[_HEAD.size : _HEAD.size + length])
        del self._bytes[: _HEAD.size + length]
        return body

    def _piece(self) -> Data:
        piece = bytes(self._bytes[: self._left])
        del self._bytes[: len(piece)]
        self._left -= len(piece)
        return Data(self._stream, piece, self._last and not self._left)

    def _control(self, kind: int, flags: int, body: bytes) -> Frame | None:
        """Decode a control frame; None for one that needs no reply (GOAWAY, SETTINGS, ...)."""
        try:
            if kind == _SYN_STREAM:
                stream = _ONE.unpack_from(body)[0] & ~_CONTROL
                if stream <= self._newest or not stream % 2:
                    raise SpdyError("a client's streams have odd numbers, each above the last")
                self._newest = stream
                return Opened(stream, self._decoded(body[10:]), bool(flags & _FIN))
            if kind in (_SYN_REPLY, _HEADERS):  # later frames continue their compression
                self._decoded(body[4:])
            if kind == _RST_STREAM:
                return Reset(_ONE.unpack_from(body)[0])
            if kind == _PING:
                return Ping(_ONE.unpack_from(body)[0])
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a frame of type {kind} cannot be read: {error}") from error
        return None

    def _decoded(self, block: bytes) -> Mapping[str, str]:
        plain = self._headers.decompress(block, LARGEST_HEADERS_BYTES)
        if self._headers.unconsumed_tail:
            raise SpdyError("the headers of a stream are too long")
        (count,) = _ONE.unpack_from(plain)
        if count > MOST_HEADERS:
            raise SpdyError("a stream has too many headers")
        headers = {}
        at = _ONE.size
        for _ in range(count):
            name, at = _text(plain, at)
            value, at = _text(plain, at)
            headers[name.lower()] = value
        return headers


def _text(plain: bytes, at: int) -> tuple[str, int]:
    (length,) = _ONE.unpack_from(plain, at)
    at += _ONE.size
    if length > len(plain) - at:
        raise SpdyError("a header exceeds its block")
    return plain[at : at + length].decode(), at + length


class Writer:
    """Encodes frames."""

    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=DICTIONARY)

    def reply(self, stream: int, headers: Mapping[str, str] | None = None) -> bytes:
        """Accept a stream.  Replies must be sent in the order of these calls."""
        return self._with_headers(_SYN_REPLY, _ONE.pack(stream), headers or {})

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Open a stream, as clients do.  To be sent in the order of these calls."""
        return self._with_headers(_SYN_STREAM, _TWO.pack(stream, 0) + b"\0\0", headers)

    def _with_headers(self, kind: int, body: bytes, headers: Mapping[str, str]) -> bytes:
        plain = _ONE.pack(len(headers))
        for pair in headers.items():
            for text in pair:
                encoded = text.encode()
                plain += _ONE.pack(len(encoded)) + encoded
        block = self._headers.compress(plain) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        return _control(kind, body + block)


def data(stream: int, content: bytes, *, last: bool = False) -> bytes:
    """Return a data frame of at most ``LARGEST_DATA_BYTES``."""
    return _HEAD.pack(stream, (_FIN if last else 0) << 24 | len(content)) + content


def reset(stream: int, status: int) -> bytes:
    """Return a frame that cancels a stream."""
    return _control(_RST_STREAM, _TWO.pack(stream, status))


def ping(number: int) -> bytes:
    """Return the reply to a ping."""
    return _control(_PING, _ONE.pack(number))


def _control(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(_CONTROL | VERSION << 16 | kind, len(body)) + body


def _dictionary() -> bytes:
    """Return the predefined compression dictionary of headers (SPDY/3, 2.6.10.1)."""
    words = """
        options head post put delete trace accept accept-charset accept-encoding accept-language
        accept-ranges age allow authorization cache-control connection content-base
        content-encoding content-language content-length content-location content-md5
        content-range content-type date etag expect expires from host if-match if-modified-since
        if-none-match if-range if-unmodified-since last-modified location max-forwards pragma
        proxy-authenticate proxy-authorization range referer retry-after server te trailer
        transfer-encoding upgrade user-agent vary via warning www-authenticate method get status
        200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""
    rest = (
        "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
        "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
        "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
        "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
        "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
        "application/xml,application/xhtml+xml,text/plain,text/javascript,public"
        "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
    )
    counted = (word.replace("_", " ").encode() for word in words.split())
    return b"".join(_ONE.pack(len(word)) + word for word in counted) + rest.encode()


DICTIONARY = _dictionary()
