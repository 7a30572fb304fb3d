"""A terminal of its own for a command, for tests that type."""

import os
import pty
import select
import subprocess
import termios
import time

from tests.cluster import PATIENCE


class Terminal:
    """A command that has a terminal of its own, as a login's first command has."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        self._theirs = theirs
        self._said = b""

    def settings(self) -> list:
        return termios.tcgetattr(self._theirs)

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read_until(self, text: bytes, seconds: float = PATIENCE) -> bytes:
        """Return the output up to a text, and the text."""
        deadline = time.monotonic() + seconds
        while text not in self._said:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come, only {self._said!r}"
            ended = self._process.poll() is not None
            if select.select([self._ours], [], [], 0 if ended else min(left, 1))[0]:
                self._said += os.read(self._ours, 4096)
            else:
                assert not ended, f"{text!r} did not come before the end, only {self._said!r}"
        end = self._said.index(text) + len(text)
        said, self._said = self._said[:end], self._said[end:]
        return said

    def end(self) -> int:
        code = self._process.wait(PATIENCE)
        assert self.settings() == self.before, "the terminal is not as it was"
        os.close(self._ours)
        os.close(self._theirs)
        return code
