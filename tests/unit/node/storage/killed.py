"""Work that is killed, or whose disk is full, before one of its file operations.

Each time it is done by a process of its own.  That is forked by one that has imported little: to
fork one that has collected all tests costs several times as much as the work.
"""

import errno
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

OPERATIONS = frozenset(
    {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
)
CUT, FAILED, DONE = 9, 1, 0

KilledAt = Callable[..., bool]


@contextmanager
def killing() -> Iterator[KilledAt]:
    """A function that does work in a process that ends before its so-manieth file operation.

    It ends as by kill -9; with ``full`` it goes on, but that operation fails, for want of space.
    The value says whether it came to that.  The work is a function of a module and its arguments.
    """
    program = f"from {__name__} import serve; serve()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        requests, responses = process.stdin, process.stdout
        assert requests is not None
        assert responses is not None

        def killed_at(number: int, work: Callable, *arguments: object, full: bool = False) -> bool:
            pickle.dump((number, full, work, arguments), requests)
            requests.flush()
            code = responses.read(1)
            assert code in (bytes([CUT]), bytes([DONE])), "its traceback is on standard error"
            return code == bytes([CUT])

        yield killed_at


def serve() -> None:
    """Do what is requested on standard input, each in a fork, until that ends."""
    # What is cut off here does not have to survive a power cut, too.
    os.fsync = lambda _: None
    while True:
        try:
            number, full, work, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            _work_and_exit(number, full, work, arguments)
        _, status = os.waitpid(child, 0)
        os.write(1, bytes([os.waitstatus_to_exitcode(status)]))


def _work_and_exit(number: int, full: bool, work: Callable, arguments: tuple) -> NoReturn:
    left = number

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event in OPERATIONS:
            left -= 1
            if left == -1 and full:
                raise OSError(errno.ENOSPC, "No space left on device")
            if left < 0 and not full:
                os._exit(CUT)

    sys.addaudithook(hook)
    try:
        work(*arguments)
    except OSError:
        if left < 0:
            os._exit(CUT)
        traceback.print_exc()
        os._exit(FAILED)
    except BaseException:  # noqa: BLE001 - reported by the exit code
        traceback.print_exc()
        os._exit(FAILED)
    os._exit(CUT if left < 0 else DONE)
