"""Which of the host's files QEMU has in a root of its own, and where it has none."""

import errno
import os
from pathlib import Path

import pytest

from corral.aio import own_thread
from corral.node.host import linux_namespaces
from corral.node.qemu import chroot


def test_the_directory_of_the_program_is_in_the_chroot(tmp_path):
    program = tmp_path / "qemu" / "bin" / "qemu-system-x86_64"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert [*chroot._trees(str(program))][-1] == tmp_path / "qemu"
    alone = tmp_path / "alone" / "qemu"
    alone.parent.mkdir()
    alone.touch(mode=0o755)
    assert [*chroot._trees(str(alone))][-1] == tmp_path / "alone"
    assert tmp_path not in [*chroot._trees("true")]


def test_missing_paths_are_not_in_the_chroot(tmp_path):
    shown = [*chroot._files([tmp_path / "missing", tmp_path])]
    assert tmp_path in shown
    assert tmp_path / "missing" not in shown
    assert Path("/dev/null") in shown
    assert not {Path("/etc/passwd"), Path("/dev/kvm"), Path("/dev/net/tun")} & {*shown}


async def test_missing_privileges_are_the_reason(tmp_path, monkeypatch):
    def refuses(_kinds):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(linux_namespaces.libc, "unshare", refuses)
    assert "Operation not permitted" in await chroot.obstacle(tmp_path, "true", [])
    assert [*tmp_path.iterdir()] == []


async def test_a_program_that_does_not_run_in_the_chroot_is_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(chroot, "within", lambda *arguments: arguments[-1]())
    assert await chroot.obstacle(tmp_path, "true", []) == ""
    assert await chroot.obstacle(tmp_path, "false", []) == "false does not run in it"
    assert "no-such-program" in await chroot.obstacle(tmp_path, "no-such-program", [])
    monkeypatch.setattr(chroot, "TRIAL_SECONDS", 0.01)
    slow = ["sh", "-c", "sleep 60"]
    assert await chroot.obstacle(tmp_path, "true", slow) == "true does not run in it"


def names():
    return {each.name for each in Path("/").iterdir()}


async def test_only_the_thread_that_enters_has_the_root(tmp_path):
    before = names()

    def look():
        files = (Path("/etc/passwd"), Path("/proc/self"), chroot.OVERCOMMIT)
        return names(), [each.exists() for each in files]

    try:
        seen, found = await own_thread(chroot.within, tmp_path, "true", [], look)
    except PermissionError:
        assert os.geteuid() != 0 or await chroot.obstacle(tmp_path, "true", [])
    else:
        assert {"dev", "etc", "usr"} <= seen < before
        assert found == [False, False, True]
    assert names() == before
    assert [*tmp_path.iterdir()] == []


async def test_another_user_can_enter_in_spite_of_private_parent_directories(tmp_path):
    kept = os.umask(0o077)
    try:
        modes = await own_thread(chroot.within, tmp_path, "true", [], lambda: Path("/etc").stat())
        assert modes.st_mode & 0o777 == 0o755
        assert os.umask(0o077) == 0o077, "others in this process are not concerned"
    except PermissionError:
        assert os.geteuid() != 0 or await chroot.obstacle(tmp_path, "true", [])
    finally:
        os.umask(kept)


def test_a_failed_system_call_is_an_error():
    with pytest.raises(OSError, match="Errno"):
        linux_namespaces.check(-1)
    linux_namespaces.check(0)
