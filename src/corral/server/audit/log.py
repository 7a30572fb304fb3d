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
        self._path = path
        self._told_lost = told_lost
        self._largest_bytes = largest_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._untold = 0
        self._rest = b""
        self._fault = ""
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._executor = ThreadPoolExecutor(1, "corral-audit")
        self.written = 0
        """Lines that are in the file."""
        self.lost = 0
        """Lines that never will be."""
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise AuditError(f"{path} cannot be written as an audit log: {error}") from error

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
        if self._fault:
            log.error("audit log ends without its last lines", reason=self._fault)

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
        job = asyncio.get_running_loop().run_in_executor(self._executor, self._append, text)
        untold, self._untold = self._untold, 0
        job.add_done_callback(lambda done: self._settle(done.result(), batch, untold, text))

    def _settle(
        self, result: tuple[int, str], batch: list[bytes], untold: int, text: bytes
    ) -> None:
        """A batch has been written, or the disk refused: then the rest of it comes first again."""
        count, fault = result
        if untold:
            log.error("audit log has lost lines", file=str(self._path), lost=untold)
        if fault:
            if fault != self._fault:
                log.error("audit log cannot be written", file=str(self._path), reason=fault)
            self._fault, self._rest = fault, text[count:]
            self._waiting_bytes = len(self._rest) + sum(map(len, self._waiting))
            self.written += len(batch)  # they wait in the rest, which is never given up
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
            return
        if self._fault:
            log.warning("audit log can be written again", file=str(self._path))
        self._fault, self._rest = "", b""
        self.written += len(batch)
        self._waiting_bytes = sum(map(len, self._waiting))
        if self._waiting or self._untold:
            self._write()
        else:
            self._busy = False
            self._idle.set()

    # ---------------------------------------------------------- on the thread

    def _append(self, text: bytes) -> tuple[int, str]:
        """How many bytes are in the file now, and why not all of them."""
        view = memoryview(text)
        try:
            self._settle_file(len(text))
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            return len(text) - len(view), error.strerror or str(error)
        return len(text), ""

    def _settle_file(self, coming: int) -> None:
        """Begin a new file where this one is full, or somebody has taken it away."""
        if self._rest:
            return  # the end of a line belongs to its beginning
        held = os.fstat(self._descriptor)
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            there = None
        if there is not None and (there.st_ino, there.st_dev) == (held.st_ino, held.st_dev):
            if not held.st_size or held.st_size + coming <= self._largest_bytes:
                return
            self._put_aside()
        opened = self._open()
        os.close(self._descriptor)
        self._descriptor = opened

    def _put_aside(self) -> None:
        for number in range(KEPT - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self._path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags | os.O_NONBLOCK, 0o600)
        found = os.fstat(descriptor)
        reason = files.stranger(found)
        if not stat.S_ISREG(found.st_mode):
            reason = "is no ordinary file"
        if reason:
            os.close(descriptor)
            raise OSError(None, reason, str(self._path))
        return descriptor
