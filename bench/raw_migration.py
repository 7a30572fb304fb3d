"""QEMU's live migration by hand, which ``migration`` compares with: two QEMUs on one host.

What a person would type who knows QEMU: memory over a Unix socket, and, where the disk is copied,
a mirror into the NBD server of the target before.
"""

import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.boot import create_overlay, plain_command

PROMPT, PASSWORD, SHELL = rb"login: $", rb"assword: $", rb"[#$] (\x1b\[6n)?$"
PATIENCE_SECONDS = 120.0
NODE = "root"
_MIRROR, _REMOTE = "mirror", "remote"


class RawMove(NamedTuple):
    """Seconds of one migration.

    whole: from the start of the target's QEMU until the guest runs there.
    transfer: from the first command of the migration until then.
    stopped: while the guest ran nowhere, by the time stamps of both QEMUs.
    downtime: the source's own figure.
    """

    whole: float
    transfer: float
    stopped: float
    downtime: float


class Monitor:
    """A QMP connection; ``execute`` returns the result, ``wait`` an event."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(PATIENCE_SECONDS)
        self._lines = connection.makefile("rb")
        self._events: list[dict[str, Any]] = []
        assert "QMP" in json.loads(self._lines.readline())
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        request = {"execute": command, "arguments": arguments}
        self._connection.sendall(json.dumps(request).encode())
        while "event" in (said := self._read()):
            self._events.append(said)
        assert "return" in said, (command, said)
        return said["return"]

    def wait(self, name: str, **data: str) -> float:
        """Return the time stamp of the first such event, which may have come already."""
        while True:
            for event in self._events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    stamp = event["timestamp"]
                    return stamp["seconds"] + stamp["microseconds"] / 1e6
            self._events.append(self._read())

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "QEMU has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class RawGuest:
    """A QEMU with the devices of the demo guest.  ``arguments`` are beside the usual ones."""

    def __init__(self, overlay: Path, memory: str, *arguments: str) -> None:
        self.overlay, self.memory = overlay, memory
        ours, theirs = zip(socket.socketpair(), socket.socketpair(), strict=True)
        descriptors = [each.fileno() for each in theirs]
        with contextlib.ExitStack() as stack:
            for each in theirs:
                stack.enter_context(each)
            self._process = subprocess.Popen(
                [*_command(overlay, memory, *descriptors), *arguments], pass_fds=descriptors
            )
        self._serial = ours[1]
        self._serial.settimeout(PATIENCE_SECONDS)
        self.monitor = Monitor(ours[0])

    def boot(self, command: str = "") -> None:
        """Wait for the login prompt; run a command, if there is one, in the background."""
        self._says(PROMPT)
        if command:
            self._types("demo", PASSWORD)
            self._types("demo", SHELL)
            self._types(f"setsid sh -c '{command}' > /dev/null 2>&1 < /dev/null &", SHELL)

    def type(self, line: str) -> None:
        """Type a line at the console, and do not wait for what comes of it."""
        self._serial.sendall(line.encode() + b"\n")

    def _types(self, line: str, pattern: bytes) -> None:
        self.type(line)
        self._says(pattern)

    def _says(self, pattern: bytes) -> None:
        heard = b""
        while not re.search(pattern, heard):
            chunk = self._serial.recv(4096)
            assert chunk, "QEMU has ended"
            heard += chunk

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.monitor.close()
        self._serial.close()


@contextlib.contextmanager
def booted(disk: Path, directory: Path, memory: str, command: str = "") -> Iterator[list[RawGuest]]:
    """A guest that has booted, as a list of one, in which ``move`` replaces it."""
    guests = [RawGuest(create_overlay(directory / "0.qcow2", disk), memory)]
    try:
        guests[0].boot(command)
        yield guests
    finally:
        for guest in guests:
            guest.end()


def move(guests: list[RawGuest], disk: Path, *, copied: bool) -> RawMove:
    """Migrate the guest into a new QEMU, with a disk of its own or with the same one."""
    [source] = guests
    directory = source.overlay.parent
    number = int(source.overlay.stem) + 1
    memory, disks = directory / f"memory-{number}", directory / f"disks-{number}"
    overlay = source.overlay
    if copied:
        overlay = create_overlay(directory / f"{number}.qcow2", disk)
    begun = time.perf_counter()
    target = RawGuest(overlay, source.memory, "-S", "-incoming", f"unix:{memory}")
    guests.append(target)
    _capabilities(target, events=True)
    ready = time.perf_counter()
    if copied:
        _mirror(source, target, disks)
    _capabilities(source, events=True, **{"pause-before-switchover": copied})
    source.monitor.execute(
        "migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 300}
    )
    source.monitor.execute("migrate", uri=f"unix:{memory}")
    if copied:
        source.monitor.wait("MIGRATION", status="pre-switchover")
        source.monitor.execute("block-job-cancel", device=_MIRROR)
        source.monitor.wait("BLOCK_JOB_COMPLETED", device=_MIRROR)
        source.monitor.execute("migrate-continue", state="pre-switchover")
    target.monitor.wait("MIGRATION", status="completed")
    if copied:  # it must not write to the disk any more that the guest now has
        target.monitor.execute("nbd-server-stop")
    target.monitor.execute("cont")
    resumed = target.monitor.wait("RESUME")
    moved = time.perf_counter()
    stopped = resumed - source.monitor.wait("STOP")
    source.monitor.wait("MIGRATION", status="completed")
    downtime = source.monitor.execute("query-migrate")["downtime"] / 1e3
    source.end()
    guests.remove(source)
    return RawMove(moved - begun, moved - ready, stopped, downtime)


def _mirror(source: RawGuest, target: RawGuest, disks: Path) -> None:
    address = {"type": "unix", "path": str(disks)}
    target.monitor.execute("nbd-server-start", addr={"type": "unix", "data": {"path": str(disks)}})
    export = {"type": "nbd", "id": NODE, "node-name": NODE, "writable": True}
    target.monitor.execute("block-export-add", **export)
    remote = {"driver": "nbd", "node-name": _REMOTE, "server": address, "export": NODE}
    source.monitor.execute("blockdev-add", **remote)
    mirror = {"job-id": _MIRROR, "device": NODE, "target": _REMOTE, "sync": "top"}
    source.monitor.execute("blockdev-mirror", **mirror, **{"copy-mode": "write-blocking"})
    source.monitor.wait("BLOCK_JOB_READY", device=_MIRROR)


def _capabilities(guest: RawGuest, **states: bool) -> None:
    listed = [{"capability": name, "state": state} for name, state in states.items()]
    guest.monitor.execute("migrate-set-capabilities", capabilities=listed)


def _command(overlay: Path, memory: str, monitor: int, serial: int) -> list[str]:
    image: Mapping[str, object] = {
        "driver": "qcow2",
        "node-name": NODE,
        "file": {"driver": "file", "filename": str(overlay)},
    }
    return plain_command(
        memory,
        "-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control",
        "-chardev", f"socket,id=serial,fd={serial}", "-serial", "chardev:serial",
        "-blockdev", json.dumps(image), "-device", f"virtio-blk-pci,drive={NODE}",
    )  # fmt: skip
