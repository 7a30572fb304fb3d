"""Compressed files of every kind are read whole, and none can fill the machine."""

import bz2
import gzip
import io
import lzma
import random
import zlib

import pytest
from hypothesis import given, settings, strategies as st

from corral.node.images.error import ImageError
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, silent
from corral.node.images.streams import Stream, chunks_of, write_sparse, zstd

PACKERS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
    "bzip2": bz2.compress,
}
TEXT = b"".join(b"line %d\n" % number for number in range(100_000))


@pytest.fixture
async def open_stream():
    def open_stream(content, **limits):
        meter = Meter(silent, "unpack")
        return Stream(io.BytesIO(content), name="it", limits=Limits(**limits), meter=meter)

    return open_stream


@pytest.fixture(params=PACKERS)
def pack(request):
    return PACKERS[request.param]


async def test_compressed_data_is_decompressed(open_stream, pack):
    assert b"".join(chunks_of(open_stream(pack(TEXT)))) == TEXT


async def test_incompressible_data_is_decompressed(open_stream, pack):
    noise = random.Random(1).randbytes(1_200_000)
    assert b"".join(chunks_of(open_stream(pack(noise)))) == noise


async def test_reading_in_odd_portions(open_stream, pack):
    stream = open_stream(pack(TEXT))
    portions = [stream.read(count) for count in (1, 511, 7, 70_001)]
    assert b"".join(portions) == TEXT[: sum((1, 511, 7, 70_001))]
    assert [len(each) for each in portions] == [1, 511, 7, 70_001]


async def test_empty_members_are_limited(open_stream, pack):
    """Each takes some microseconds: a small file of them would keep a processor busy for hours."""
    if pack is bytes:
        pack = gzip.compress
    stream = open_stream(pack(b"") * 5000)
    with pytest.raises(ImageError, match="1001 compressed members with next to nothing"):
        stream.read(1)


async def test_many_members_are_decompressed(open_stream, pack):
    pieces = [b"%05d" % number * 200 for number in range(3000)]
    stream = open_stream(b"".join(map(pack, pieces)))
    assert b"".join(chunks_of(stream)) == b"".join(pieces)


async def test_an_empty_stream(open_stream, pack):
    stream = open_stream(pack(b""))
    assert (stream.read(10), stream.read(10)) == (b"", b"")


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd", "bzip2"])
async def test_members_after_one_another_and_padding(open_stream, kind):
    pack = PACKERS[kind]
    content = pack(b"one") + pack(b"two") + bytes(1024)
    assert open_stream(content).read(100) == b"onetwo"


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd", "bzip2"])
async def test_truncated_streams_are_rejected(open_stream, kind):
    with pytest.raises(ImageError, match="it is cut short"):
        list(chunks_of(open_stream(PACKERS[kind](TEXT)[:-10])))


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd", "bzip2"])
async def test_damaged_streams_are_rejected(open_stream, kind):
    content = bytearray(PACKERS[kind](TEXT))
    content[len(content) // 2] ^= 0xFF
    content[-6] ^= 0xFF
    with pytest.raises(ImageError, match=r"it is (damaged|cut short)"):
        list(chunks_of(open_stream(bytes(content))))


async def test_trailing_garbage_is_rejected(open_stream):
    with pytest.raises(ImageError, match="something else follows"):
        open_stream(gzip.compress(b"x") + b"garbage").read(100)


async def test_decompression_bombs_are_limited_in_size_and_ratio(open_stream):
    bomb = zlib.compressobj(wbits=31)
    content = bomb.compress(bytes(8 << 20)) + bomb.flush()
    with pytest.raises(ImageError, match="expands to more than 1048576 bytes") as caught:
        list(chunks_of(open_stream(content, unpacked_bytes=1 << 20)))
    assert "bomb" in caught.value.hint
    with pytest.raises(ImageError, match="expands more than 10 times"):
        list(chunks_of(open_stream(content, ratio=10, ratio_from_bytes=1 << 20)))
    assert len(b"".join(chunks_of(open_stream(content, ratio=10)))) == 8 << 20


async def test_memory_for_decompression_is_limited(open_stream):
    """A zstd frame may announce a window of terabytes."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xf8" + b"\x01\x00\x00"
    with pytest.raises(ImageError, match="it is damaged"):
        open_stream(frame + bytes(100)).read(1)


@settings(max_examples=200)
@given(magic=st.sampled_from([b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh9"]),
       rest=st.binary(max_size=200))  # fmt: skip
def test_any_bytes_are_read_or_rejected(magic, rest):
    class Quiet:
        def advance(self, count):
            pass

    stream = Stream(io.BytesIO(magic + rest), name="it", limits=Limits(), meter=Quiet())
    try:
        while stream.read(1 << 16):
            pass
    except ImageError:
        pass


def test_blocks_of_zeros_become_holes(tmp_path):
    pieces = [b"a" * 65536, bytes(65536), b"b" * 100]
    write_sparse(tmp_path / "f", pieces, Limits(), "it")
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)
    assert (tmp_path / "f").stat().st_blocks * 512 <= 65536 + 4096


def test_a_hole_at_the_end_counts(tmp_path):
    write_sparse(tmp_path / "f", [bytes(65536)], Limits(), "it")
    assert (tmp_path / "f").stat().st_size == 65536


def test_the_space_of_a_disk_is_limited(tmp_path):
    with pytest.raises(ImageError, match="it occupies more than 65536 bytes"):
        write_sparse(tmp_path / "f", [b"x" * 65536] * 2, Limits(disk_bytes=65536), "it")
