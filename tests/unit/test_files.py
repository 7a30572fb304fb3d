"""Files are replaced whole, privately, and read without trust."""

import errno
import os
import resource
import signal
import stat

import msgspec
import pytest

from corral import files


class Point(msgspec.Struct):
    x: int = 0
    name: str = ""


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_whole_and_privately(tmp_path, durable):
    path = tmp_path / "file"
    path.write_bytes(b"old, and longer")
    path.chmod(0o644)
    files.replace(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{os.getpid()}").symlink_to(victim)
    files.replace(tmp_path / "file", b"new")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_cannot_be_written_leaves_the_old_content(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.replace(tmp_path / "file", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


DEEP = b'{"of another version":' + b"[" * 100_000


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"x":"1"}', b'{"name":"\xff"}', b'"\xff"', b"[]", DEEP]
)
def test_a_damaged_file_counts_as_missing(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert files.read_json(tmp_path / "file", Point) is None


def test_a_missing_file_is_none(tmp_path):
    assert files.read_json(tmp_path / "missing", Point) is None
    assert files.read_json(tmp_path / "missing" / "below", Point) is None
    assert files.read_json(tmp_path, Point) is None


def test_a_valid_file_is_read(tmp_path):
    files.replace(tmp_path / "file", b'{"x":3}')
    assert files.read_json(tmp_path / "file", Point) == Point(3)


def test_the_last_state_that_was_noted_counts(tmp_path):
    path = tmp_path / "file"
    for x in range(3):
        files.append_state(path, b'{"x":%d}' % x)
        assert files.read_state(path, Point) == Point(x)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_one_state_is_a_journal(tmp_path):
    path = tmp_path / "file"
    files.replace(path, b'{"x":3}')
    assert files.read_state(path, Point) == Point(3)
    files.append_state(path, b'{"x":4}')
    assert files.read_state(path, Point) == Point(4)


@pytest.mark.parametrize("length", range(len(b'\n{"x":4}')))
def test_a_state_that_was_half_written_does_not_count(tmp_path, length):
    path = tmp_path / "file"
    files.append_state(path, b'{"x":3}')
    with path.open("ab") as file:
        file.write(b'\n{"x":4}'[:length])  # killed there
    assert files.read_state(path, Point) == Point(3)
    files.append_state(path, b'{"x":5}')
    assert files.read_state(path, Point) == Point(5)


@pytest.mark.parametrize("spoilt", [b"{\n", b'{"x":"1"}\n', b"\xff\n", b"[]\n"])
def test_a_journal_whose_last_state_is_spoilt_counts_as_absent(tmp_path, spoilt):
    path = tmp_path / "file"
    files.append_state(path, b'{"x":3}')
    with path.open("ab") as file:
        file.write(spoilt)
    assert files.read_state(path, Point) is None


def test_a_journal_does_not_grow_for_ever(tmp_path):
    path = tmp_path / "file"
    line = b'{"name":"%b"}' % (b"n" * 1000)
    for _ in range(100):
        files.append_state(path, line)
        assert files.read_state(path, Point) == Point(name="n" * 1000)
        assert path.stat().st_size <= files.LONGEST_JOURNAL + 2 * len(line)


def test_a_journal_follows_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "file").symlink_to(victim)
    with pytest.raises(OSError, match="link"):
        files.append_state(tmp_path / "file", b'{"x":3}')
    assert victim.read_bytes() == b"precious"


def test_a_state_for_which_there_is_no_room_leaves_the_one_before(tmp_path):
    path = tmp_path / "file"
    files.append_state(path, b'{"x":3}')
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 4, limit[1]))
        with pytest.raises(OSError, match="No space left"):
            files.append_state(path, b'{"x":4}')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert files.read_state(path, Point) == Point(3)


def test_a_file_is_read_ahead_as_a_whole(tmp_path, monkeypatch):
    """Linux heeds no more of one advice than what the disk reads ahead: 128 KiB, mostly."""
    path = tmp_path / "file"
    path.write_bytes(bytes(300_000))
    advised = []
    monkeypatch.setattr(files.os, "posix_fadvise", lambda _, *advice: advised.append(advice))
    files.read_ahead(path)
    piece = 128 << 10
    assert advised == [(n * piece, piece, os.POSIX_FADV_WILLNEED) for n in range(3)]


def test_a_failing_advice_ends_the_read_ahead(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    path = tmp_path / "file"
    path.write_bytes(b"content")
    monkeypatch.setattr(files.os, "posix_fadvise", refused)
    files.read_ahead(path)
    assert path.read_bytes() == b"content"
