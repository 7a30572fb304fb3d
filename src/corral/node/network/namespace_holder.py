"""The process that holds the namespaces of a data directory while no manager runs.

It sleeps in the machine namespace.  Who is not root has that namespace in a user namespace, where
they keep their user id, and have a network administrator's rights over their own networks alone;
the manager joins it at its start, before it has threads.
"""

import os
import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.node.host import process
from corral.node.host.process import Identity
from corral.node.network.namespaces import CLONE_NEWUSER, Namespace, enter
from corral.node.network.netlink import NetworkError

SLEEP: Final = ("sleep", "infinity")
START_SECONDS: Final = 5.0
_READY: Final = "ready"


def join(directory: Path, others: Iterable[Path] = ()) -> None:
    """Enter the user namespace of a data directory, made where there is none; root needs none.

    ``directory`` is the holder's, ``others`` are of processes that are in it too: where the holder
    was killed, one of them leads there.  Only a process with a single thread can do this.  Raises
    NetworkError; nothing has changed then.
    """
    if os.geteuid() == 0:
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (directory, *others):
        found = process.find(each) if each.is_dir() else None
        if found is not None and _entered(found):
            return
    if not _entered(_start(directory)):
        raise NetworkError("the user namespace that was just made cannot be entered")


async def start(namespace: Namespace, descriptors: Sequence[int], output: int) -> int:
    """Start a holder of a namespace; answers its pid."""
    return await namespace.call(
        lambda: process.launch(SLEEP, descriptors=descriptors, output=output)
    )


def _entered(identity: Identity) -> bool:
    """Enter the user namespace of a process; False where it is in ours, or in a stranger's."""
    with suppress(OSError):
        descriptor = os.open(f"/proc/{identity.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(descriptor, CLONE_NEWUSER)
        finally:
            os.close(descriptor)
        return True
    return False


def _start(directory: Path) -> Identity:
    """A holder in a new user namespace and a new network namespace."""
    lock = process.hold(directory)
    if lock is None:
        raise NetworkError(f"a process of another user holds {directory}")
    try:
        reading, writing = os.pipe()
        with open(reading, encoding="utf-8", errors="replace") as said:  # noqa: PTH123
            try:
                pid = process.launch(_command(), descriptors=[lock], output=writing)
            except FileNotFoundError as error:
                raise NetworkError(f"{error.filename} is missing", _INSTALL) from error
            finally:
                os.close(writing)
            ready = bool(select.select([said], [], [], START_SECONDS)[0])
            answer = said.readline().strip() if ready else "no answer"
    finally:
        os.close(lock)
    identity = process.identify(pid)
    if answer != _READY or identity is None:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        why = answer.removeprefix("unshare: ").removeprefix("unshare failed: ")
        raise NetworkError(f"no user namespace can be made: {why}", _hint())
    process.write_record(directory, identity)
    return identity


_INSTALL: Final = "Install it: apt-get install util-linux"


def _command() -> list[str]:
    """It keeps the user's and the group's number; whatever it execs has no rights of its own."""
    quiet = ">/dev/null 2>&1"
    return [
        "unshare", "--user", f"--map-user={os.getuid()}", f"--map-group={os.getgid()}", "--net",
        "--", "sh", "-c", f"echo {_READY}; exec {' '.join(SLEEP)} {quiet}",
    ]  # fmt: skip


def _hint() -> str:
    """Which of the kernel's switches forbids it."""
    for name, forbidding in (
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("user.max_user_namespaces", "0"),
    ):
        path = Path("/proc/sys") / name.replace(".", "/")
        with suppress(OSError):
            if path.read_text(encoding="ascii").strip() == forbidding:
                return (
                    f"The system forbids it: {name} is {forbidding}. An administrator can allow it."
                )
    return "Run corral as root, or where user namespaces are allowed."
