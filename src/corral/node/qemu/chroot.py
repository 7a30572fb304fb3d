"""A root directory for QEMU with its program, its libraries and a few devices only.

QEMU gets everything else as open descriptors, so a guest that breaks out of it finds nothing of the
host: no home, no other machine, no socket, no process.  This needs the right to mount; without it,
QEMU sees the host's files with its user's permissions.
"""

import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from corral.aio import own_thread
from corral.failures import describe
from corral.node.host.linux_namespaces import (
    CLONE_NEWIPC,
    CLONE_NEWNS,
    MS_BIND,
    check,
    libc,
    mount,
    unmount,
    unshare,
)
from corral.node.host.process import END_SECONDS, launch

TRIAL_SECONDS = 20.0

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_BARE = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY = (1 << 0).to_bytes(8, "little") + bytes(24)
"""A struct mount_attr that sets MOUNT_ATTR_RDONLY (mount_setattr(2))."""
_PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu")
"""Directories of programs and libraries; in some distributions they are links to one another."""
_SETTINGS = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/alternatives")
"""Files of the dynamic linker, and alternatives."""
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
"""The host's overcommit of memory; QEMU reads it if it reserves room that it does not use yet."""
OWN_PROC = Path("/processes")
"""A proc(5) in a root directory; the file of ``OVERCOMMIT`` would be missing from it."""
_DEVICES = ("null", "zero", "full", "random", "urandom")

T = TypeVar("T")


def within(
    place: Path,
    program: str,
    files: Sequence[Path],
    function: Callable[[], T],
    *,
    has_own_process: bool = False,
) -> T:
    """Call a function in a root directory of its own, which the calling thread never leaves.

    Run it in a thread of its own (``apart``).  ``place``: a directory to mount the root on, which
    only this mount namespace sees.  ``files``: devices and files that it also has, by their paths;
    ``has_own_process``: whether it has a proc(5) with the processes of its user, at ``OWN_PROC``.
    Raises OSError.
    """
    shown = [*_trees(program), *_files(files)]
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    mount(None, "/", _MS_REC | _MS_PRIVATE)
    mount("tmpfs", str(place), _BARE, "tmpfs", b"size=64k,mode=755")
    os.chdir(place)
    kept = os.umask(0o022)  # of this thread alone, after unshare: QEMU's user must have access
    for one in shown:
        _show(one)
    if has_own_process:
        _show_own_process()
    _copy(OVERCOMMIT)
    os.umask(kept)
    mount(None, ".", _MS_REMOUNT | _MS_RDONLY | _BARE)
    check(libc.pivot_root(b".", b"."))
    unmount(".")
    os.chdir("/")
    return function()


def _trees(program: str) -> Iterator[Path]:
    """Iterate over the directories of programs, and that of QEMU if it is in none of them."""
    trees = [each for name in _PROGRAMS if (each := Path("/", name)).exists()]
    yield from trees
    found = Path(shutil.which(program) or program).resolve()
    if not any(found.is_relative_to(tree) for tree in trees):
        yield found.parent.parent if found.parent.name == "bin" else found.parent


def _files(others: Sequence[Path]) -> Iterator[Path]:
    shown = [*(Path("/", name) for name in _SETTINGS), *(Path("/dev", one) for one in _DEVICES)]
    yield from (each for each in [*shown, *others] if each.exists())


def _show(path: Path) -> None:
    """Bind-mount a file or directory below the working directory, read-only."""
    here = path.relative_to("/")
    here.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        here.symlink_to(path.readlink())
        return
    if path.is_dir():
        here.mkdir(exist_ok=True)
    else:
        here.touch()
    mount(str(path), str(here), MS_BIND | _MS_REC)
    if path.is_dir():
        check(
            libc.syscall(
                _MOUNT_SETATTR,
                _AT_FDCWD,
                os.fsencode(here),
                _AT_RECURSIVE,
                _READ_ONLY,
                len(_READ_ONLY),
            )
        )


def _show_own_process() -> None:
    """Mount a /proc without settings of the kernel, and without processes of other users."""
    here = OWN_PROC.relative_to("/")
    here.mkdir()
    mount("proc", str(here), _BARE | _MS_RDONLY, "proc", b"subset=pid,hidepid=invisible")


def _copy(path: Path) -> None:
    """Copy a small file below the working directory, if it exists."""
    if path.exists():
        here = path.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(path.read_bytes())


async def obstacle(directory: Path, program: str, privileges: Sequence[str]) -> str:
    """Return why this does not work here, tried with ``--version``; empty if it does."""
    with TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
        command = [*privileges, program, "--version"]
        try:
            status = await own_thread(within, Path(place), program, (), partial(_run, command))
        except OSError as error:
            return describe(error)
    return "" if status == 0 else f"{program} does not run in it"


def _run(command: Sequence[str]) -> int | None:
    """Run a command; return its exit status, None if it was killed after a timeout."""
    output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        pid = launch(command, descriptors=[], output=output)
    finally:
        os.close(output)
    pidfd = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([pidfd], [], [], TRIAL_SECONDS)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            select.select([pidfd], [], [], END_SECONDS)
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        return status.si_status if ended and status is not None else None
    finally:
        os.close(pidfd)
