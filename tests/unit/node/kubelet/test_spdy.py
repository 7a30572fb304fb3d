"""SPDY frames, from friends and from strangers."""

import contextlib
import struct
import zlib

import pytest
from hypothesis import given, strategies as st

from corral.node.kubelet import spdy
from corral.node.kubelet.spdy import Data, Opened, Ping, Reset, SpdyError

HEADERS = {"streamtype": "data", "port": "80", "requestid": "0"}


def frames(*packets: bytes, at_once: bool = True) -> list[spdy.Frame]:
    reader = spdy.Reader()
    whole = b"".join(packets)
    pieces = [whole] if at_once else [whole[at : at + 1] for at in range(len(whole))]
    return [frame for piece in pieces for frame in reader.feed(piece)]


def control(kind: int, body: bytes, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, len(body)) + body


def opening(plain: bytes) -> bytes:
    """A frame that opens a stream with headers that are wrong in some way."""
    packer = zlib.compressobj(zdict=spdy.DICTIONARY)
    return control(1, bytes(10) + packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


def test_the_compression_dictionary_is_spdys():
    """Zlib names a dictionary by its checksum in what it compresses."""
    assert len(spdy.DICTIONARY) == 1423
    assert zlib.adler32(spdy.DICTIONARY) == 0xE3C6A7C2


@pytest.mark.parametrize("at_once", [True, False])
def test_streams_are_opened_used_and_closed(at_once):
    writer = spdy.Writer()
    packets = (
        writer.open(1, HEADERS),
        writer.open(3, {"StreamType": "error"}),
        spdy.data(1, b"abc"),
        spdy.data(1, b"", last=True),
        spdy.reset(3, spdy.CANCEL),
        spdy.ping(7),
    )
    received = frames(*packets, at_once=at_once)
    sent = b"".join(frame.data for frame in received if isinstance(frame, Data))
    assert sent == b"abc"
    others = [frame for frame in received if not (isinstance(frame, Data) and frame.data)]
    assert others == [
        Opened(1, HEADERS, last=False),
        Opened(3, {"streamtype": "error"}, last=False),
        Data(1, b"", last=True),
        Reset(3),
        Ping(7),
    ]


def test_replies_keep_the_compression_in_step():
    writer = spdy.Writer()
    replies = [writer.reply(1), writer.reply(3, {"status": "200 OK"})]
    assert frames(*replies, writer.open(5, HEADERS)) == [Opened(5, HEADERS, last=False)]


def test_data_is_passed_on_before_its_frame_is_complete():
    reader = spdy.Reader()
    frame = spdy.data(1, b"x" * 1000, last=True)
    assert list(reader.feed(frame[:100])) == [Data(1, b"x" * 92, last=False)]
    assert list(reader.feed(frame[100:])) == [Data(1, b"x" * 908, last=True)]


def test_unknown_frames_are_skipped():
    assert frames(control(4, bytes(4)), control(7, bytes(8)), control(99, b"?"), spdy.ping(1)) == [
        Ping(1)
    ]


@pytest.mark.parametrize(
    "packet",
    [
        control(6, bytes(4), version=2),
        control(6, b""),
        control(3, b"\0"),
        control(1, b"short"),
        control(1, bytes(10) + b"not compressed"),
        struct.pack(">HHI", 0x8003, 1, spdy.LARGEST_CONTROL_BYTES + 1),
        opening(struct.pack(">I", spdy.MOST_HEADERS + 1)),
        opening(struct.pack(">II", 1, 2**31) + b"name"),
        opening(struct.pack(">II", 1, 1) + b"\xff" + struct.pack(">I", 0)),
        opening(struct.pack(">I", 3)),
        opening(bytes(spdy.LARGEST_HEADERS_BYTES + 1)),
    ],
    ids=[
        "version", "empty ping", "empty reset", "short", "plain", "long", "many headers",
        "header behind its block", "no text", "missing headers", "bomb",
    ],
)  # fmt: skip
def test_invalid_frames_are_rejected(packet):
    with pytest.raises(SpdyError):
        frames(packet)


@pytest.mark.parametrize("streams", [(0,), (2,), (3, 3), (3, 1), ((1 << 31) + 2,)])
def test_stream_ids_are_odd(streams):
    writer = spdy.Writer()
    with pytest.raises(SpdyError, match="odd numbers"):
        frames(*(writer.open(stream, {}) for stream in streams))


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_are_parsed_or_rejected(pieces):
    reader = spdy.Reader()
    try:
        for piece in pieces:
            list(reader.feed(piece))
    except SpdyError:
        pass


@given(
    st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=8), st.binary(max_size=500)
)
def test_frames_round_trip(headers, content):
    headers = {name.lower(): value for name, value in headers.items()}
    received = frames(spdy.Writer().open(9, headers), spdy.data(9, content, last=True))
    assert received == [Opened(9, headers, last=False), Data(9, content, last=True)]


@given(st.data())
def test_modified_frames_are_parsed_or_rejected(draw):
    writer = spdy.Writer()
    whole = bytearray(
        writer.open(1, HEADERS) + spdy.data(1, b"abc") + writer.reply(1) + spdy.ping(2)
        + spdy.reset(1, spdy.CANCEL) + writer.open(3, HEADERS) + spdy.data(3, b"", last=True)
    )  # fmt: skip
    places = st.integers(0, len(whole) - 1)
    for at, value in draw.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        whole[at] = value
    cut = draw.draw(places)
    reader = spdy.Reader()
    with contextlib.suppress(SpdyError):
        for piece in (whole[:cut], whole[cut:]):
            for frame in reader.feed(bytes(piece)):
                assert isinstance(frame, spdy.Frame)


def test_buffered_incomplete_frames_are_limited():
    """However long a frame says it is, what has come of its data is passed on."""
    reader = spdy.Reader()
    list(reader.feed(struct.pack(">II", 1, spdy.LARGEST_DATA_BYTES)))
    for _ in range(100):
        assert sum(len(frame.data) for frame in reader.feed(bytes(64 * 1024))) == 64 * 1024
    assert not reader._bytes


@pytest.mark.parametrize("flags", range(0, 256, 5))
def test_unknown_flags_are_ignored(flags):
    body = struct.pack(">II", 1, flags << 24 | 3) + b"abc"
    assert frames(body) == [Data(1, b"abc", last=bool(flags & 1))]
