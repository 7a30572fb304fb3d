"""Converts complete content to a disk: decompresses, detects the format, rewrites to plain qcow2.

The content is untrusted: it is checked before QEMU opens it, and bounded by the size of its claim.
"""

import asyncio
import errno
import sys
from pathlib import Path
from typing import cast

from corral.node.images import ImageError, convert, qcow, qcow_rewrite
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, Report, in_thread
from corral.node.images.streams import Stream, chunks_of, write_sparse
from corral.node.storage.disk_space import max_size
from corral.node.storage.population.error import NO_SPACE, ImageTooLarge, PopulationError
from corral.node.storage.volume import Format

_CONVERT_SECONDS = 600.0
_CONVERT_BYTES_PER_SECOND = 16 << 20
"""Of a slow disk, for the time limit."""


def max_bytes(capacity: int) -> int:
    """Return the largest file whose disk fits into a capacity."""
    return max_size(capacity, is_raw=False) + (1 << 20)


async def make_disk(file: Path, capacity: int, name: str, report: Report) -> tuple[Path, Format]:
    """Convert a file to a disk in the same directory; may convert in place.

    name: of the content, in messages.  May be interrupted at any step and repeated.
    Raises PopulationError.
    """
    limits = Limits(
        unpacked_bytes=max_bytes(capacity),
        ratio=sys.maxsize,  # holes take no space, and the claim's size bounds all else
        disk_bytes=max_bytes(capacity),
        virtual_bytes=qcow.MAX_BYTES,
        convert_seconds=_CONVERT_SECONDS + capacity / _CONVERT_BYTES_PER_SECOND,
    )
    try:
        file = await _decompress(file, name, limits, report)
        disk = await asyncio.to_thread(qcow.inspect, file, name, limits)
        if disk.virtual_size > capacity:
            raise ImageTooLarge(disk.virtual_size, capacity)
        if disk.format == "qcow2":
            file = await _rewrite_plain(file, name, limits)
    except ImageError as error:
        raise from_image_error(error) from error
    except OSError as error:
        raise from_os_error(error) from error
    return file, cast("Format", disk.format)


async def _decompress(file: Path, name: str, limits: Limits, report: Report) -> Path:
    """Decompress a file beside itself, and return the result; the file itself if not compressed."""
    target = file.with_name("unpacked")

    def unpack(meter: Meter) -> bool:
        with file.open("rb") as packed:
            stream = Stream(packed, name=name, limits=limits, meter=meter)
            if not stream.compressed:
                return False
            write_sparse(target, chunks_of(stream), limits, name)
            target.chmod(0o600)
            return True

    size = (await asyncio.to_thread(file.stat)).st_size
    return target if await in_thread(unpack, Meter(report, "unpack", size)) else file


async def _rewrite_plain(file: Path, name: str, limits: Limits) -> Path:
    try:
        await asyncio.to_thread(qcow_rewrite.make_plain, file, name)
    except qcow_rewrite.NotPlain:
        target = file.with_name("converted")
        await convert.to_plain_qcow2(file, target, name, limits)
        return target
    return file


def from_image_error(error: ImageError) -> PopulationError:
    """Return a PopulationError with an image error's message and hint."""
    reason = NO_SPACE if "No space left" in error.message else "Error"
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    return PopulationError(message, reason=reason)


def from_os_error(error: OSError) -> PopulationError:
    """Return a PopulationError for an error of the host's disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PopulationError(
            "the disk of the host is full: free some space there; corral retries",
            reason=NO_SPACE,
        )
    return PopulationError(f"the host's storage: {error.strerror or error}")
