"""Fetches the guest's Debian packages by apt, from the host's own sources, without root.

apt is given a state of its own, and told that the machine is an i386 one that takes amd64 packages
too: the host's package lists, architectures and cache stay as they are. A list of what was fetched
makes the next build independent of the network.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from corral.failures import describe
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

# Empty packages that depend on the current kernels.
KERNELS = ("linux-image-cloud-amd64:amd64", "linux-image-686:i386")
NAMES = (
    "busybox-static", "dhcpcd-base", "dropbear-bin", "e2fsprogs", "libblkid1", "libc6",
    "libcom-err2", "libcrypt1", "libext2fs2", "libglib2.0-0", "libgmp10", "libnuma1",
    "libpcre2-8-0", "libtomcrypt1", "libtommath1", "libudev1", "liburing2", "libuuid1",
    "openssh-client", "openssh-sftp-server", "qemu-guest-agent", "zlib1g",
)  # fmt: skip
APT_SECONDS = 600
_INDEX = "packages.json"


@dataclass(frozen=True, slots=True)
class Apt:
    """apt with a state of its own under `directory`."""

    directory: Path

    async def run(self, program: str, *arguments: str, cwd: Path | None = None) -> tuple[int, str]:
        """Runs `program` and returns its exit status and what it printed."""
        command = [program, *self._options(), *arguments]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise DemoError(
                f"{program} is not on this machine",
                "the demo guest is made of Debian packages: build it on Debian or Ubuntu, "
                "and import the disk here",
            ) from error
        try:
            async with asyncio.timeout(APT_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise DemoError(
                f"{program} did not end within {APT_SECONDS} s", "check the machine's network"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode(errors="replace")

    def _options(self) -> list[str]:
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        status = self.directory / "status"
        status.touch()
        settings = {
            "APT::Architecture": "i386",
            "APT::Architectures": "i386,amd64",
            "APT::Sandbox::User": "",  # the packages go where apt's own user may not write
            "Dir::State": self.directory / "state",
            "Dir::State::status": status,
            "Dir::Cache": self.directory / "cache",
        }
        return [f"-o{name}={value}" for name, value in settings.items()]


async def fetch(cache: Path, progress: Callable[[str], None]) -> list[Path]:
    """The guest's packages: those fetched earlier, if all are there, else fetched now.

    Builds that share a cache wait for each other. Raises DemoError if a package cannot be had.
    """
    async with _locked(cache, progress):
        return fetched(cache) or await _fetch(cache, progress)


@asynccontextmanager
async def _locked(cache: Path, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Holds the cache for one build. The lock goes with its process, however that ends."""
    try:
        await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
        lock = os.open(cache / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DemoError(
            f"the cache {cache} cannot be written: {describe(error)}", "choose another one: --cache"
        ) from error
    try:
        await _taken_in_time(lock, cache, progress)
        yield
    finally:
        os.close(lock)


async def _taken_in_time(lock: int, cache: Path, progress: Callable[[str], None]) -> None:
    try:
        async with asyncio.timeout(2 * APT_SECONDS):
            # A thread that waits for a lock cannot be cancelled, hence a look at it now and then.
            while not _taken(lock):
                progress("another build is fetching packages into the same cache")
                await asyncio.sleep(1)
    except TimeoutError as error:
        raise DemoError(f"another build holds {cache}", "end it, and build again") from error


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _fetch(cache: Path, progress: Callable[[str], None]) -> list[Path]:
    directory = cache / "packages"
    directory.mkdir(parents=True, exist_ok=True)
    apt = Apt(cache / "apt")
    progress("reading Debian's package lists (i386, amd64)")
    # A source that fails matters only if a package is then not found.
    _, lists_said = await apt.run("apt-get", "-q", "update")
    kernels = [await _kernel_package(apt, kernel, lists_said) for kernel in KERNELS]
    names = [*kernels, *NAMES]
    files = await _file_names(apt, names, lists_said)
    progress(f"fetching {len(names)} packages (90 MB)")
    await _download(apt, names, lists_said, cwd=directory)
    temporary = cache / f"{_INDEX}.tmp"
    temporary.write_text(json.dumps({"asked": _asked(), "files": files}, indent=1))
    temporary.replace(cache / _INDEX)
    return [directory / file for file in files]


async def _file_names(apt: Apt, names: Sequence[str], lists_said: str) -> list[str]:
    """The files that apt would download: others of these packages may lie where it puts them.

    apt names none that is there already: hence a directory that is empty.
    """
    with TemporaryDirectory(dir=apt.directory) as empty:
        said = await _download(apt, ["--print-uris", *names], lists_said, cwd=Path(empty))
    files = re.findall(r"^'\S+' (\S+\.deb) ", said, re.MULTILINE)
    if len(files) != len(names):
        raise DemoError(f"apt names {len(files)} files of {len(names)} packages", "report it")
    return files


async def _download(apt: Apt, arguments: Sequence[str], lists_said: str, *, cwd: Path) -> str:
    status, said = await apt.run("apt-get", "-q", "download", *arguments, cwd=cwd)
    if status != 0:
        raise DemoError(
            f"apt could not fetch the guest's packages: {_complaint(said, lists_said)}",
            "check the machine's network and /etc/apt/sources.list",
        )
    return said


def fetched(cache: Path) -> list[Path]:
    """The packages of an earlier `fetch`; none unless that asked for the same, and all are there.

    Whatever else lies in the cache, of older versions or other recipes, does not count.
    """
    try:
        index = json.loads((cache / _INDEX).read_text())
        files: list[str] = index["files"] if index["asked"] == _asked() else []
    except (OSError, ValueError, KeyError, TypeError):  # an earlier version's was a list
        return []
    packages = [cache / "packages" / file for file in files]
    return packages if all(package.is_file() for package in packages) else []


def _asked() -> list[str]:
    return [*KERNELS, *NAMES]


async def _kernel_package(apt: Apt, kernel: str, lists_said: str) -> str:
    _, said = await apt.run("apt-cache", "depends", kernel)
    found = re.search(r"Depends: (linux-image-[0-9][^\s:]*)", said)
    if not found:
        raise DemoError(
            f"apt knows no package {kernel}: {_complaint(lists_said, said)}",
            "check that /etc/apt/sources.list names Debian's main archive and the network works",
        )
    return f"{found.group(1)}:{kernel.partition(':')[2]}"


def _complaint(*said: str) -> str:
    """The first line that apt marked as an error."""
    lines: Sequence[str] = [line for text in said for line in text.splitlines()]
    return next((line for line in lines if line.startswith("E: ")), "it did not say why")
