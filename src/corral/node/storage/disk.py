"""Disk files of volumes: create, resize, convert, sync."""

import os
import subprocess
from pathlib import Path

import msgspec

from corral import files
from corral.node.images import ImageError, qcow
from corral.node.images.limits import Limits
from corral.node.storage.error import StorageError
from corral.node.storage.volume import Format

COPY_SECONDS = 24 * 3600.0
_QUICK_SECONDS = 60.0
_LIMITS = Limits(virtual_bytes=qcow.MAX_BYTES)


def make_raw(path: Path, size: int) -> None:
    """Create a blank raw disk without allocated blocks."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def size(path: Path, format_: Format) -> int:
    """Return the virtual size of a disk.  Raises StorageError for a file that is no disk."""
    if format_ == "raw":
        return path.stat().st_size
    try:
        found = qcow.inspect(path, path.name, _LIMITS)
    except ImageError as error:
        raise StorageError(error.message, error.hint) from error
    if found.format != "qcow2":
        raise StorageError(f"{path.name} is not a qcow2 disk")
    return found.virtual_size


def grow(path: Path, format_: Format, capacity: int) -> None:
    """Resize a disk that is not open anywhere, unless it is larger.  Raises StorageError."""
    if size(path, format_) >= capacity:
        return
    if format_ == "raw":
        os.truncate(path, capacity)
        return
    node = {
        "driver": "qcow2",
        "file": {"driver": "file", "filename": str(path)},
        "backing": None,  # a smaller layer; a resize does not read it
    }
    qemu_img("resize", "-q", f"json:{msgspec.json.encode(node).decode()}", str(capacity))


def to_raw(path: Path) -> Path:
    """Convert a qcow2 disk to a raw one beside it, and return that.  Raises StorageError."""
    raw = path.with_name(f"{path.name}.raw")
    raw.unlink(missing_ok=True)
    qemu_img("convert", "-f", "qcow2", "-O", "raw", str(path), str(raw), seconds=COPY_SECONDS)
    return raw


def qemu_img(*arguments: str, seconds: float = _QUICK_SECONDS) -> None:
    """Run qemu-img.  Raises StorageError with the last line of its stderr."""
    try:
        subprocess.run(
            ("qemu-img", *arguments),
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
        )
    except FileNotFoundError as error:
        raise StorageError("qemu-img is not installed", "apt install qemu-utils") from error
    except subprocess.TimeoutExpired as error:
        raise StorageError(f"qemu-img {arguments[0]} took over {seconds:g} s") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        detail = (
            lines[-1].removeprefix("qemu-img: ") if lines else f"exit status {error.returncode}"
        )
        raise StorageError(f"qemu-img {arguments[0]}: {detail}") from error


def sync(path: Path) -> None:
    """Make a file durable, its content and its name."""
    files.sync_file(path)
    files.sync_directory(path.parent)
