"""The file of the audit log: lines are queued, and written in batches by a thread.

Requests do not wait for the disk.  Lines that cannot be written stay pending, and when too many
are, new ones are lost: that is reported in the log of the manager, by a metric, and in this file
itself, once it can be written again.
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

MAX_FILE_BYTES: Final = 100 << 20
"""A larger file is rotated to ``….1``, and that one to ``….2``."""
MAX_ROTATED: Final = 10
"""Rotated files that are kept."""
MAX_PENDING_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 1.0
CLOSING_SECONDS: Final = 5.0

log = structlog.get_logger()


class AuditError(Exception):
    """A file that cannot be written as an audit log; the message names it and the cause."""


class Log:
    """The file; ``lost_line`` returns the line that reports so many lost lines.

    Used from one event loop.  Raises AuditError if the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        lost_line: Callable[[int], bytes],
        *,
        max_bytes: int = MAX_FILE_BYTES,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self.path = path
        self._lost_line = lost_line
        self._max_bytes = max_bytes
        self._max_pending_bytes = max_pending_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unreported = 0
        self._rest = b""
        self._offset = 0
        self.fault = ""
        """Error of the last write; "" if it succeeded."""
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._executor = ThreadPoolExecutor(1, "corral-audit")
        self.written = 0
        """Count of lines in the file."""
        self.refused = 0
        """Count of lines whose first write failed: they are pending, or were."""
        self.lost = 0
        """Count of lines dropped because too many were pending."""
        try:
            self._descriptor = self._open()
        except OSError as error:
            reason = error.strerror or error.args[1]
            if not path.parent.is_dir():
                reason = f"there is no directory {path.parent}. Make it first"
            raise AuditError(f"{path} cannot be written as an audit log: {reason}") from error

    def add(self, line: bytes) -> None:
        """Queue a line, which ends with a newline."""
        if self._pending_bytes + len(line) > self._max_pending_bytes:
            self.lost += 1
            self._unreported += 1
            return
        self._pending.append(line)
        self._pending_bytes += len(line)
        self._schedule_write()

    async def close(self) -> None:
        """Write pending lines, if possible, and close the file."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._idle.wait()
        if self._retry is not None:
            self._retry.cancel()
        self._executor.shutdown()
        os.close(self._descriptor)
        if self.fault:
            lines = self._rest.count(b"\n") + len(self._pending)
            log.error("audit log ends without its last lines", reason=self.fault, lost=lines)

    def _schedule_write(self) -> None:
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # Not at once: lines of the same iteration of the loop join the batch.
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        batch, self._pending = self._pending, []
        lost_lines = [self._lost_line(self._unreported)] if self._unreported else []
        text = b"".join((self._rest, *lost_lines, *batch))
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._executor, self._append, text, self._offset)
        unreported, self._unreported = self._unreported, 0
        job.add_done_callback(lambda done: self._finish(done.result(), batch, unreported, text))

    def _finish(
        self, result: tuple[int, str], batch: list[bytes], unreported: int, text: bytes
    ) -> None:
        """Finish the write of a batch; after an error, its rest is retried first."""
        count, fault = result
        if unreported:
            log.error("audit log has lost lines", file=str(self.path), lost=unreported)
        if fault:
            if fault != self.fault:
                log.error("audit log cannot be written", file=str(self.path), reason=fault)
            line = text.rfind(b"\n", 0, count) + 1
            self.fault, self._rest, self._offset = fault, text[line:], count - line
            self.refused += min(len(batch), self._rest.count(b"\n"))
            self._pending_bytes = len(self._rest) + sum(map(len, self._pending))
            self.written += len(batch)  # pending in the rest, which is never dropped
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
            return
        if self.fault:
            log.warning("audit log can be written again", file=str(self.path))
        self.fault, self._rest, self._offset = "", b"", 0
        self.written += len(batch)
        self._pending_bytes = sum(map(len, self._pending))
        if self._pending or self._unreported:
            self._write()
        else:
            self._busy = False
            self._idle.set()

    # ---------------------------------------------------------- on the thread

    def _append(self, text: bytes, offset: int) -> tuple[int, str]:
        """Append text from an offset; return how many bytes of it are written, and the error.

        The bytes before the offset are in the file; if it was replaced, all of the text is written.
        """
        written = offset
        try:
            for _ in range(2):  # once more if the file was deleted meanwhile
                if self._rotate_if_needed(len(text), mid_line=bool(written)):
                    written = 0
                while written < len(text):
                    written += os.write(self._descriptor, memoryview(text)[written:])
                if os.fstat(self._descriptor).st_nlink:
                    break
        except OSError as error:
            return written, error.strerror or error.args[1]
        return written, ""

    def _rotate_if_needed(self, size: int, *, mid_line: bool) -> bool:
        """Open a new file if this one is full, or was moved or deleted; return whether it is new.

        A file that ends within a line is continued.
        """
        opened_file = os.fstat(self._descriptor)
        try:
            current = self.path.lstat()
        except FileNotFoundError:
            current = None
        if current is not None and (current.st_ino, current.st_dev) == (
            opened_file.st_ino,
            opened_file.st_dev,
        ):
            if mid_line or not opened_file.st_size or opened_file.st_size + size <= self._max_bytes:
                return False
            self._rotate()
        opened = self._open()
        os.close(self._descriptor)
        self._descriptor = opened
        if not opened_file.st_nlink and opened_file.st_size:
            log.error("audit log was deleted: its lines are gone", file=str(self.path))
        return True

    def _rotate(self) -> None:
        for number in range(MAX_ROTATED - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._rotated_path(number).replace(self._rotated_path(number + 1))
        self.path.replace(self._rotated_path(1))

    def _rotated_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags | os.O_NONBLOCK, 0o600)
        status = os.fstat(descriptor)
        reason = files.untrusted_stat(status)
        if not stat.S_ISREG(status.st_mode):
            reason = "is no ordinary file"
        if reason:
            os.close(descriptor)
            raise OSError(None, reason, str(self.path))
        return descriptor
