"""Makes a disk of what has arrived: unpacked, recognised by its content, made plain.

Nothing that a stranger wrote is given to QEMU before it was looked at, and nothing can grow beyond
the claim that it is for.
"""

import asyncio
import errno
import sys
from pathlib import Path
from typing import cast

from corral.node.images import ImageError, convert, qcow, qcow_rewrite
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, Report, in_thread
from corral.node.images.streams import Stream, pieces_of, write_sparse
from corral.node.storage.disk_space import largest
from corral.node.storage.population.error import NO_ROOM, NotFilled, TooLarge
from corral.node.storage.volume import Format

_CONVERT_SECONDS = 600.0
_CONVERTED_A_SECOND = 16 << 20
"""Bytes that a slow disk takes a second, at the least."""


def most_bytes(capacity: int) -> int:
    """How large a file may be whose disk fits into so many bytes."""
    return largest(capacity, is_raw=False) + (1 << 20)


async def make_disk(file: Path, capacity: int, name: str, report: Report) -> tuple[Path, Format]:
    """A disk of what is in a file, in the same directory; the file may be it afterwards.

    May be cut at any step and done again.  Raises NotFilled, which calls the content ``name``.
    """
    limits = Limits(
        unpacked_bytes=most_bytes(capacity),
        ratio=sys.maxsize,  # zeros take no space, and the claim bounds everything else
        disk_bytes=most_bytes(capacity),
        virtual_bytes=qcow.LARGEST,
        convert_seconds=_CONVERT_SECONDS + capacity / _CONVERTED_A_SECOND,
    )
    try:
        file = await _unpacked(file, name, limits, report)
        disk = await asyncio.to_thread(qcow.inspect, file, name, limits)
        if disk.virtual_size > capacity:
            raise TooLarge(disk.virtual_size, capacity)
        if disk.format == "qcow2":
            file = await _plain(file, name, limits)
    except ImageError as error:
        raise of_image(error) from error
    except OSError as error:
        raise of_disk(error) from error
    return file, cast("Format", disk.format)


async def _unpacked(file: Path, name: str, limits: Limits, report: Report) -> Path:
    """The file that is inside, where there is something around it."""
    target = file.with_name("unpacked")

    def unpack(meter: Meter) -> bool:
        with file.open("rb") as packed:
            stream = Stream(packed, name=name, limits=limits, meter=meter)
            if not stream.compressed:
                return False
            write_sparse(target, pieces_of(stream), limits, name)
            target.chmod(0o600)
            return True

    size = (await asyncio.to_thread(file.stat)).st_size
    return target if await in_thread(unpack, Meter(report, "unpack", size)) else file


async def _plain(file: Path, name: str, limits: Limits) -> Path:
    try:
        await asyncio.to_thread(qcow_rewrite.make_plain, file, name)
    except qcow_rewrite.NotPlain:
        target = file.with_name("converted")
        await convert.to_plain_qcow2(file, target, name, limits)
        return target
    return file


def of_image(error: ImageError) -> NotFilled:
    """What is wrong with an image, and what to do, as one sentence."""
    reason = NO_ROOM if "No space left" in error.message else "Error"
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    return NotFilled(message, reason=reason)


def of_disk(error: OSError) -> NotFilled:
    """What the host's disk refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NotFilled(
            "the disk of the host is full: free some space there; it is tried again",
            reason=NO_ROOM,
        )
    return NotFilled(f"the host's storage: {error.strerror or error}")
