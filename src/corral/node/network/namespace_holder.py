"""The process that keeps the namespaces of a data directory alive while no manager runs.

It sleeps in the machine namespace.  Without root that one belongs to a user namespace, in which the
user keeps the user id and has CAP_NET_ADMIN over its networks only; the manager joins it at its
start, before it has threads.
"""

import os
import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.node.host import process
from corral.node.host.linux_namespaces import CLONE_NEWUSER, enter
from corral.node.host.proc import acquire_lock
from corral.node.host.process import Identity
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError

SLEEP: Final = ("sleep", "infinity")
START_SECONDS: Final = 5.0
_READY: Final = "ready"


def join(directory: Path, others: Iterable[Path] = ()) -> None:
    """Enter the user namespace of a data directory, creating it if necessary; root needs none.

    ``directory`` is the holder's, ``others`` are those of processes in the same user namespace: if
    the holder was killed, one of them leads there.  Only a process with a single thread can do
    this.  Raises NetworkError; nothing has changed then.
    """
    if os.geteuid() == 0:
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (directory, *others):
        found = process.find(each) if each.is_dir() else None
        if found is not None and _enter_user_namespace(found):
            return
    if not _enter_user_namespace(_start_holder(directory)):
        raise NetworkError("the new user namespace cannot be entered")


async def start(namespace: Namespace, descriptors: Sequence[int], output: int) -> int:
    """Start the holder of a namespace; return its pid."""
    return await namespace.call(
        lambda: process.launch(SLEEP, descriptors=descriptors, output=output)
    )


def _enter_user_namespace(identity: Identity) -> bool:
    """Enter the user namespace of a process; False if it is ours already, or another user's."""
    with suppress(OSError):
        descriptor = os.open(f"/proc/{identity.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(descriptor, CLONE_NEWUSER)
        finally:
            os.close(descriptor)
        return True
    return False


def _start_holder(directory: Path) -> Identity:
    """Start a holder in a new user namespace and a new network namespace."""
    lock = acquire_lock(directory)
    if lock is None:
        raise NetworkError(f"a process of another user holds {directory}")
    try:
        reading, writing = os.pipe()
        with open(reading, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            try:
                pid = process.launch(_command(), descriptors=[lock], output=writing)
            except FileNotFoundError as error:
                raise NetworkError(f"{error.filename} is missing", _INSTALL) from error
            finally:
                os.close(writing)
            ready = bool(select.select([stream], [], [], START_SECONDS)[0])
            answer = stream.readline().strip() if ready else "no answer"
    finally:
        os.close(lock)
    identity = process.identify(pid)
    if answer != _READY or identity is None:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        reason = answer.removeprefix("unshare: ").removeprefix("unshare failed: ")
        raise NetworkError(f"no user namespace can be created: {reason}", _sysctl_hint())
    process.write_record(directory, identity)
    return identity


_INSTALL: Final = "Install it: apt-get install util-linux"


def _command() -> list[str]:
    """Return the command.

    It keeps the user's and the group's id, and the program that it runs has no capabilities.
    """
    quiet = ">/dev/null 2>&1"
    return [
        "unshare", "--user", f"--map-user={os.getuid()}", f"--map-group={os.getgid()}", "--net",
        "--", "sh", "-c", f"echo {_READY}; exec {' '.join(SLEEP)} {quiet}",
    ]  # fmt: skip


def _sysctl_hint() -> str:
    """Return the hint: the sysctl that forbids user namespaces."""
    for name, forbidding_value in (
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("user.max_user_namespaces", "0"),
    ):
        path = Path("/proc/sys") / name.replace(".", "/")
        with suppress(OSError):
            if path.read_text(encoding="ascii").strip() == forbidding_value:
                return (
                    f"The system forbids it: {name} is {forbidding_value}. "
                    "An administrator can allow it."
                )
    return "Run corral as root, or where user namespaces are allowed."
