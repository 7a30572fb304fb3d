"""Files are replaced whole, privately, and read without trust."""

import os
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


def test_a_link_that_somebody_laid_is_not_followed(tmp_path):
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
def test_what_is_spoilt_counts_as_absent(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert files.read_json(tmp_path / "file", Point) is None


def test_what_is_missing_is_absent(tmp_path):
    assert files.read_json(tmp_path / "missing", Point) is None
    assert files.read_json(tmp_path / "missing" / "below", Point) is None
    assert files.read_json(tmp_path, Point) is None


def test_what_is_whole_is_read(tmp_path):
    files.replace(tmp_path / "file", b'{"x":3}')
    assert files.read_json(tmp_path / "file", Point) == Point(3)
