"""Converts an untrusted qcow2 disk with qemu-img, in a process with limits of time and memory.

All qcow2 files of the store are thus written by this host's QEMU: without compressed clusters (they
cost a guest most of a second of its boot), snapshots, or an untrusted header.
"""

import math
import signal
from pathlib import Path

from corral.node.host.command import run
from corral.node.images.error import ImageError, invalid_disk
from corral.node.images.limits import Limits

_MEMORY_BYTES = 4 << 30  # of address space, of which little is ever touched


async def to_plain_qcow2(source: Path, target: Path, name: str, limits: Limits) -> None:
    """Convert a disk that has passed ``qcow.inspect``.

    Raises ImageError ``InvalidDisk`` if QEMU finds it damaged, or the result exceeds the limits.
    """
    # -f: QEMU must not detect the format from untrusted content.  --pdeathsig: without the manager
    # the conversion is useless, and its directory is removed.
    command = (
        "setpriv", "--pdeathsig=KILL", "--",
        "prlimit", f"--as={_MEMORY_BYTES}", f"--fsize={limits.disk_bytes}",
        f"--cpu={math.ceil(limits.convert_seconds)}", "--core=0", "--",
        "qemu-img", "convert", "-f", "qcow2", "-O", "qcow2", source, target,
    )  # fmt: skip
    try:
        status, _, errors = await run(*command, seconds=limits.convert_seconds)
    except TimeoutError as error:
        raise invalid_disk(
            f"{name} was not converted within {limits.convert_seconds} seconds"
        ) from error
    except FileNotFoundError as error:
        raise _no_qemu() from error
    if status:
        raise _failure(status, errors.decode(errors="replace"), name, limits)


def _failure(code: int, stderr: str, name: str, limits: Limits) -> ImageError:
    if code == 127:
        return _no_qemu()
    if code == -signal.SIGXFSZ or "File too large" in stderr:
        return invalid_disk(f"{name} occupies more than {limits.disk_bytes} bytes")
    lines = stderr.strip().splitlines()
    detail = lines[-1].removeprefix("qemu-img: ") if lines else f"qemu-img ended with {code}"
    if "No space left" in stderr:
        return invalid_disk(
            f"{name}: {detail}", "free some space: corral image ls, corral image rm"
        )
    return invalid_disk(f"{name} is a damaged qcow2 file: {detail}")


def _no_qemu() -> ImageError:
    return invalid_disk("qemu-img is not installed", "apt install qemu-utils")
