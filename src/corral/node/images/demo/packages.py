"""Downloads the guest's Debian packages with apt, from the host's sources, without root.

apt gets a state directory of its own, configured for i386 with amd64 as a foreign architecture: the
host's package lists, architectures and cache are not changed. An index of the downloaded packages
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
from corral.node.host.command import run
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

# Metapackages that depend on the current kernels.
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
    """apt with its state under `directory`."""

    directory: Path

    async def run(self, program: str, *arguments: str, cwd: Path | None = None) -> tuple[int, str]:
        """Run `program`; return its exit status and output."""
        command = [program, *self._options(), *arguments]
        try:
            status, output, errors = await run(*command, seconds=APT_SECONDS, directory=cwd)
        except FileNotFoundError as error:
            raise DemoError(
                f"{program} is not installed",
                "the demo guest is made of Debian packages: build it on Debian or Ubuntu, "
                "and import the disk here",
            ) from error
        except TimeoutError as error:
            raise DemoError(
                f"{program} did not end within {APT_SECONDS} s", "check the machine's network"
            ) from error
        return status, (output + errors).decode(errors="replace")

    def _options(self) -> list[str]:
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        status = self.directory / "status"
        status.touch()
        settings = {
            "APT::Architecture": "i386",
            "APT::Architectures": "i386,amd64",
            "APT::Sandbox::User": "",  # the user _apt may not write to our directory
            "Dir::State": self.directory / "state",
            "Dir::State::status": status,
            "Dir::Cache": self.directory / "cache",
        }
        return [f"-o{name}={value}" for name, value in settings.items()]


async def fetch(cache: Path, progress: Callable[[str], None]) -> list[Path]:
    """Return the guest's packages from the cache if complete, else download them.

    Builds that share a cache wait for each other. Raises DemoError if a download fails.
    """
    async with _locked(cache, progress):
        return fetched(cache) or await _fetch(cache, progress)


@asynccontextmanager
async def _locked(cache: Path, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Lock the cache for one build, by an flock, which ends with the process."""
    try:
        await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
        lock = os.open(cache / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DemoError(
            f"the cache {cache} cannot be written: {describe(error)}", "choose another one: --cache"
        ) from error
    try:
        await _acquire(lock, cache, progress)
        yield
    finally:
        os.close(lock)


async def _acquire(lock: int, cache: Path, progress: Callable[[str], None]) -> None:
    try:
        async with asyncio.timeout(2 * APT_SECONDS):
            # Polled, since a thread that waits for a lock cannot be cancelled.
            while not _try_acquire(lock):
                progress("another build is fetching packages into the same cache")
                await asyncio.sleep(1)
    except TimeoutError as error:
        raise DemoError(f"another build holds {cache}", "end it, and build again") from error


def _try_acquire(lock: int) -> bool:
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
    # A failed source matters only if a package is not found then.
    _, update_output = await apt.run("apt-get", "-q", "update")
    kernels = [await _kernel_package(apt, kernel, update_output) for kernel in KERNELS]
    names = [*kernels, *NAMES]
    files = await _file_names(apt, names, update_output)
    progress(f"fetching {len(names)} packages (90 MB)")
    await _download(apt, names, update_output, cwd=directory)
    temporary = cache / f"{_INDEX}.tmp"
    temporary.write_text(json.dumps({"asked": _requested(), "files": files}, indent=1))
    temporary.replace(cache / _INDEX)
    return [directory / file for file in files]


async def _file_names(apt: Apt, names: Sequence[str], update_output: str) -> list[str]:
    """Return the names of the files that apt would download.

    Run in an empty directory, since apt omits files that are present.
    """
    with TemporaryDirectory(dir=apt.directory) as empty:
        output = await _download(apt, ["--print-uris", *names], update_output, cwd=Path(empty))
    files = re.findall(r"^'\S+' (\S+\.deb) ", output, re.MULTILINE)
    if len(files) != len(names):
        raise DemoError(f"apt names {len(files)} files of {len(names)} packages", "report it")
    return files


async def _download(apt: Apt, arguments: Sequence[str], update_output: str, *, cwd: Path) -> str:
    status, output = await apt.run("apt-get", "-q", "download", *arguments, cwd=cwd)
    if status != 0:
        raise DemoError(
            f"apt could not fetch the guest's packages: {_error_line(output, update_output)}",
            "check the machine's network and /etc/apt/sources.list",
        )
    return output


def fetched(cache: Path) -> list[Path]:
    """Return the packages of an earlier `fetch` of the same names; none if any is missing.

    Other files in the cache, of older versions or other recipes, are ignored.
    """
    try:
        index = json.loads((cache / _INDEX).read_text())
        files: list[str] = index["files"] if index["asked"] == _requested() else []
    except (OSError, ValueError, KeyError, TypeError):  # missing, or an earlier version's list
        return []
    packages = [cache / "packages" / file for file in files]
    return packages if all(package.is_file() for package in packages) else []


def _requested() -> list[str]:
    return [*KERNELS, *NAMES]


async def _kernel_package(apt: Apt, kernel: str, update_output: str) -> str:
    _, output = await apt.run("apt-cache", "depends", kernel)
    found = re.search(r"Depends: (linux-image-[0-9][^\s:]*)", output)
    if not found:
        raise DemoError(
            f"apt knows no package {kernel}: {_error_line(update_output, output)}",
            "check that /etc/apt/sources.list names Debian's main archive and the network works",
        )
    return f"{found.group(1)}:{kernel.partition(':')[2]}"


def _error_line(*output: str) -> str:
    """Return apt's first error line."""
    lines: Sequence[str] = [line for text in output for line in text.splitlines()]
    return next((line for line in lines if line.startswith("E: ")), "it reported no error")
