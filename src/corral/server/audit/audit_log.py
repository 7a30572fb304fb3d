"""The file of the audit log: lines are added at once and written soon, in batches, by a thread.

Whoever is told of does not wait for the disk.  What cannot be written waits for a while, and where
too much waits, the newest is lost: that is told in the log of the manager, by a metric, and in this
file itself, as soon as there is room.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from corral import files

LARGEST_BYTES: Final = 100 << 20
"""A file that grows beyond this is put aside as ``….1``; the one that was that becomes ``….2``."""
KEPT: Final = 10
"""Files that were put aside and are kept."""
MOST_WAITING_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 1.0
CLOSING_SECONDS: Final = 5.0

log = structlog.get_logger()


class AuditError(Exception):
    """A file that cannot be written as an audit log; the message says which, and why."""


class Log:
    """The file; ``told_lost`` makes the line that tells of so many lines that were lost.

    Used from one event loop.  Raises AuditError where the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        told_lost: Callable[[int], bytes],
        *,
        largest_bytes: int = LARGEST_BYTES,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self.path = path
        self._told_lost = told_lost
        self._largest_bytes = largest_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._untold = 0
        self._rest = b""
        self._begun = 0
        self.fault = ""
        """Why nothing can be written now; empty where that is no trouble."""
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._executor = ThreadPoolExecutor(1, "corral-audit")
        self.written = 0
        """Lines that are in the file."""
        self.refused = 0
        """Lines that could not be written when they came: they wait, or did."""
        self.lost = 0
        """Lines that never will be in it."""
        try:
            self._descriptor = self._open()
        except OSError as error:
            reason = error.strerror or error.args[1]
            if not path.parent.is_dir():
                reason = f"there is no directory {path.parent}. Make it first"
            raise AuditError(f"{path} cannot be written as an audit log: {reason}") from error

    def add(self, line: bytes) -> None:
        """Write a line soon; it ends with a newline."""
        if self._waiting_bytes + len(line) > self._most_waiting_bytes:
            self.lost += 1
            self._untold += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self._begin()

    async def close(self) -> None:
        """Write what waits, if it can be, and close the file."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._idle.wait()
        if self._retry is not None:
            self._retry.cancel()
        self._executor.shutdown()
        os.close(self._descriptor)
        if self.fault:
            lines = self._rest.count(b"\n") + len(self._waiting)
            log.error("audit log ends without its last lines", reason=self.fault, lost=lines)

    def _begin(self) -> None:
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # not at once: what else is told in this turn of the loop comes along
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        batch, self._waiting = self._waiting, []
        told = [self._told_lost(self._untold)] if self._untold else []
        text = b"".join((self._rest, *told, *batch))
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._executor, self._append, text, self._begun)
        untold, self._untold = self._untold, 0
        job.add_done_callback(lambda done: self._settle(done.result(), batch, untold, text))

    def _settle(
        self, result: tuple[int, str], batch: list[bytes], untold: int, text: bytes
    ) -> None:
        """A batch has been written, or the disk refused: then the rest of it comes first again."""
        count, fault = result
        if untold:
            log.error("audit log has lost lines", file=str(self.path), lost=untold)
        if fault:
            if fault != self.fault:
                log.error("audit log cannot be written", file=str(self.path), reason=fault)
            line = text.rfind(b"\n", 0, count) + 1
            self.fault, self._rest, self._begun = fault, text[line:], count - line
            self.refused += min(len(batch), self._rest.count(b"\n"))
            self._waiting_bytes = len(self._rest) + sum(map(len, self._waiting))
            self.written += len(batch)  # they wait in the rest, which is never given up
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
            return
        if self.fault:
            log.warning("audit log can be written again", file=str(self.path))
        self.fault, self._rest, self._begun = "", b"", 0
        self.written += len(batch)
        self._waiting_bytes = sum(map(len, self._waiting))
        if self._waiting or self._untold:
            self._write()
        else:
            self._busy = False
            self._idle.set()

    # ---------------------------------------------------------- on the thread

    def _append(self, text: bytes, begun: int) -> tuple[int, str]:
        """How many bytes of it are in the file now, and why not all of them.

        So many are there already, where it is the file that it was; another gets the whole line.
        """
        written = begun
        try:
            for _ in range(2):  # again where the file was deleted in the middle
                if self._settle_file(len(text), midway=bool(written)):
                    written = 0
                while written < len(text):
                    written += os.write(self._descriptor, memoryview(text)[written:])
                if os.fstat(self._descriptor).st_nlink:
                    break
        except OSError as error:
            return written, error.strerror or error.args[1]
        return written, ""

    def _settle_file(self, coming: int, *, midway: bool) -> bool:
        """Begin a new file where this one is full, or somebody has taken it away.

        One that ends midway in a line goes on.  Whether it is a new one.
        """
        held = os.fstat(self._descriptor)
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            there = None
        if there is not None and (there.st_ino, there.st_dev) == (held.st_ino, held.st_dev):
            if midway or not held.st_size or held.st_size + coming <= self._largest_bytes:
                return False
            self._put_aside()
        opened = self._open()
        os.close(self._descriptor)
        self._descriptor = opened
        if not held.st_nlink and held.st_size:
            log.error("audit log was deleted: its lines are gone", file=str(self.path))
        return True

    def _put_aside(self) -> None:
        for number in range(KEPT - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self.path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags | os.O_NONBLOCK, 0o600)
        found = os.fstat(descriptor)
        reason = files.stranger(found)
        if not stat.S_ISREG(found.st_mode):
            reason = "is no ordinary file"
        if reason:
            os.close(descriptor)
            raise OSError(None, reason, str(self.path))
        return descriptor
