"""Disks that are opened, and what becomes of them meanwhile."""

import errno
import fcntl
import os
import subprocess

import pytest

from corral.node.host.open_disks import can_be_direct, opened


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(bytes(4096))
    return path


def is_locked(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_disk_is_in_use_as_long_as_a_process_has_it_open(disk):
    descriptor = opened(disk, os.O_RDWR)
    with subprocess.Popen(("sleep", "60"), pass_fds=(descriptor,)) as process:
        os.close(descriptor)
        assert is_locked(disk)
        process.kill()
        process.wait()
    assert not is_locked(disk)


def test_several_processes_can_share_a_disk(disk):
    for descriptor in (opened(disk, os.O_RDWR), opened(disk, os.O_RDWR)):
        os.close(descriptor)


def test_reading_a_disk_does_not_lock_it(disk):
    descriptor = opened(disk, os.O_RDONLY)
    assert not is_locked(disk)
    os.close(descriptor)


def test_a_disk_that_is_being_changed_is_not_opened(disk):
    with disk.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="cloned or resized"):
            opened(disk, os.O_RDWR)


@pytest.mark.parametrize("put", [None, "other"])
def test_a_disk_turned_into_a_layer_is_not_written(disk, put, monkeypatch):
    real = os.open

    def overtaken(path, flags):
        descriptor = real(path, flags)
        disk.rename(disk.with_name("layer"))
        if put:
            disk.write_bytes(b"another")
        return descriptor

    monkeypatch.setattr(os, "open", overtaken)
    with pytest.raises(OSError, match="cloned or resized"):
        opened(disk, os.O_RDWR)


def test_symlinks_are_not_followed(disk):
    disk.with_name("link").symlink_to(disk)
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system calls it
        opened(disk.with_name("link"), os.O_RDWR)


@pytest.mark.parametrize("supported", [True, False])
def test_support_of_direct_io_is_probed(disk, supported, monkeypatch):
    real = os.open

    def open_without_direct_io(path, flags):
        if flags & os.O_DIRECT and not supported:
            raise OSError(errno.EINVAL, "not here")
        return real(path, flags & ~os.O_DIRECT)

    monkeypatch.setattr(os, "open", open_without_direct_io)
    assert can_be_direct(disk) is supported
