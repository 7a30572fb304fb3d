"""A reboot by the power button, which every guest takes for the wish to shut down.

That the guest is to start again is noted in its machine's directory, for the manager may be another
one when it has shut down.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from corral import files
from corral.node.hypervisor import GuestError

NOTE = "reboot.json"
SECONDS = 180.0
"""How long a guest may take to shut down: what KubeVirt grants by default where it is to end.

Who shuts down later does so of its own accord, and stays down.
"""


class Note(msgspec.Struct, frozen=True):
    """Until when, in seconds of the epoch."""

    until: float


class Reboot:
    """Whether a guest that shuts down is to start again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NOTE

    @property
    def awaited(self) -> bool:
        note = files.read_json(self._path, Note)
        return note is not None and time.time() < note.until

    def wish(self) -> None:
        """From now on, for so long.  Raises GuestError."""
        try:
            files.replace(self._path, msgspec.json.encode(Note(time.time() + SECONDS)))
        except OSError as error:
            raise GuestError(f"the reboot cannot be noted: {error}") from error

    def forget(self) -> None:
        """It has been done, or something else has come of it."""
        with suppress(OSError):
            self._path.unlink()
