"""The stream of a disk: whole or not at all, without its holes."""

import pytest

from corral.node.storage import StorageError
from corral.node.storage.volume_stream import Receiver, read

MiB = 1 << 20
SIZE = 64 * MiB
HEAD = b'{"size":9,"data":9}\n'


@pytest.fixture
def disk(tmp_path):
    """A disk with two pieces of content, the second one of more than a chunk."""
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(40 * MiB)
        file.write(b"middle" * MiB)
        file.truncate(SIZE)
    return path


def received(file, chunks, max_bytes=SIZE):
    receiver = Receiver(file, max_bytes)
    try:
        for chunk in chunks:
            receiver.feed(chunk)
    finally:
        receiver.close()
    return receiver


@pytest.mark.parametrize("size", [1000, 100_001, 10 * MiB, 1 << 40])
def test_a_disk_arrives_as_it_was_in_chunks_of_any_size(disk, tmp_path, size):
    whole, file = b"".join(read(disk)), tmp_path / "copy"
    chunks = (whole[start : start + size] for start in range(0, len(whole), size))
    assert received(file, chunks).is_complete
    assert file.read_bytes() == disk.read_bytes()


def test_a_head_and_an_extent_may_come_byte_by_byte(tmp_path):
    whole = HEAD + (3).to_bytes(8) + (5).to_bytes(8) + b"hello" + (9).to_bytes(8) + bytes(8)
    file = tmp_path / "copy"
    assert received(file, (whole[at : at + 1] for at in range(len(whole)))).is_complete
    assert file.read_bytes() == b"\0\0\0hello\0"


def test_holes_are_not_sent_and_stay_holes(disk, tmp_path):
    whole, file = b"".join(read(disk)), tmp_path / "copy"
    made = received(file, [whole])
    assert len(whole) < 8 * MiB
    assert made.head.data == made.received
    assert file.stat().st_blocks * 512 < 8 * MiB


@pytest.mark.parametrize("cut", [0, 10, 200, -17, -1])
def test_a_stream_that_is_cut_is_incomplete(disk, tmp_path, cut):
    whole = b"".join(read(disk))
    assert not received(tmp_path / "copy", [whole[:cut]]).is_complete


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"<html>\n", "does not send a volume"),
        (b"x" * 100_000, "does not send a volume"),
        (b'{"size":99999999999,"data":1}\n', "its source 99999999999"),
        (HEAD + (5).to_bytes(8) + (5).to_bytes(8) + b"hello", "beyond its volume"),
        (HEAD + (0).to_bytes(8) + (1 << 60).to_bytes(8), "beyond its volume"),
        (HEAD + bytes(16), "beyond its volume"),
    ],
)
def test_an_invalid_stream_is_refused(tmp_path, stream, why):
    with pytest.raises(StorageError, match=why):
        received(tmp_path / "copy", [stream])
