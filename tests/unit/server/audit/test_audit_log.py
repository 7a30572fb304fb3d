"""Tests of the file of the audit log: nothing is lost without a word."""

import asyncio
import errno
import os

import pytest

from corral.server.audit import AuditError, Log, audit_log as module


def lost(count):
    return f"lost {count}\n".encode()


async def written(log):
    async with asyncio.timeout(60):
        await log._idle.wait()


async def test_lines_are_appended_to_a_private_file(tmp_path):
    path = tmp_path / "audit.log"
    log = Log(path, lost)
    for number in range(100):
        log.add(b"line %d\n" % number)
    await log.close()
    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(100))
    assert path.stat().st_mode & 0o777 == 0o600
    log = Log(path, lost)
    log.add(b"later\n")
    await log.close()
    assert path.read_bytes().endswith(b"line 99\nlater\n")


async def test_full_files_are_rotated_and_a_limited_number_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROTATED", 2)
    path = tmp_path / "audit.log"
    log = Log(path, lost, max_bytes=20)
    for number in range(5):
        log.add(b"a line of 16 by%d\n" % number)
        await written(log)
    await log.close()
    assert {each.name for each in tmp_path.iterdir()} == {
        "audit.log",
        "audit.log.1",
        "audit.log.2",
    }
    assert path.read_bytes() == b"a line of 16 by4\n"
    assert (tmp_path / "audit.log.2").read_bytes() == b"a line of 16 by2\n"


async def test_a_removed_file_is_created_again(tmp_path):
    path = tmp_path / "audit.log"
    log = Log(path, lost)
    log.add(b"one\n")
    await written(log)
    path.rename(tmp_path / "taken")
    log.add(b"two\n")
    await log.close()
    assert (tmp_path / "taken").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


async def test_a_failing_disk_loses_no_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    real, refusals = os.write, [3, 0, 2]

    def write(descriptor, content):
        if refusals:
            part = refusals.pop()
            if part:
                return real(descriptor, bytes(content)[:part])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    path = tmp_path / "audit.log"
    log = Log(path, lost)
    log.add(b"one line\n")
    log.add(b"two lines\n")
    await written(log)
    assert path.read_bytes() == b"one line\ntwo lines\n"
    assert (log.written, log.refused, log.lost) == (2, 2, 0)
    await log.close()


@pytest.mark.parametrize("begun", [0, 12], ids=["whole lines", "half a line"])
async def test_a_removed_directory_loses_no_pending_lines(tmp_path, monkeypatch, begun):
    """Nothing goes to a file that nobody can read any more, nor half a line to a new one."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    path = tmp_path / "within" / "audit.log"
    path.parent.mkdir()
    log = Log(path, lost)
    log.add(b"gone with the directory\n")
    await written(log)
    real = os.write

    def vanish(descriptor, content):
        if begun:
            real(descriptor, bytes(content)[:begun])
            monkeypatch.setattr(os, "write", fail)
            return begun
        raise AssertionError("nothing is written to a file that is gone")

    def fail(descriptor, content):
        monkeypatch.setattr(os, "write", real)
        away()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def away():
        path.unlink()
        path.parent.rmdir()

    monkeypatch.setattr(os, "write", vanish)
    if not begun:
        away()
    log.add(b"one line\n")
    log.add(b"two lines\n")
    async with asyncio.timeout(60):
        while log.fault != os.strerror(errno.ENOENT):
            await asyncio.sleep(0.001)
    assert log.refused == 2 - bool(begun)
    log.add(b"three lines\n")
    monkeypatch.setattr(os, "write", real)
    path.parent.mkdir()
    await written(log)
    lines = b"one line\ntwo lines\nthree lines\n"
    assert path.read_bytes() == (lines[9:] if begun else lines)
    assert (log.fault, log.lost) == ("", 0)
    await log.close()


async def test_a_file_deleted_during_a_write_is_written_again(tmp_path, monkeypatch):
    path = tmp_path / "audit.log"
    log = Log(path, lost)
    real = os.write

    def write(descriptor, content):
        monkeypatch.setattr(os, "write", real)
        path.unlink()
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    log.add(b"one line\n")
    await log.close()
    assert path.read_bytes() == b"one line\n"


async def test_an_overflow_of_pending_lines_is_reported(tmp_path):
    path = tmp_path / "audit.log"
    log = Log(path, lost, max_pending_bytes=10)
    for _ in range(4):
        log.add(b"12345\n")
    await written(log)
    log.add(b"after\n")
    await log.close()
    assert log.lost == 3
    assert path.read_bytes() == b"lost 3\n12345\nafter\n"


@pytest.mark.parametrize("what", ["directory", "link", "fifo", "missing directory"])
async def test_a_special_file_is_rejected(tmp_path, what):
    path = tmp_path / "audit.log"
    match what:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(path)
        case _:
            path = tmp_path / "nowhere" / "audit.log"
    with pytest.raises(AuditError, match="cannot be written as an audit log"):
        Log(path, lost)


async def test_a_file_writable_by_others_is_rejected(tmp_path):
    path = tmp_path / "audit.log"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(AuditError, match="can be written by others"):
        Log(path, lost)
