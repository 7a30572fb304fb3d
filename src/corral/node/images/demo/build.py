"""Builds the demo guest: packages -> kernels and root directory -> disk.

For a quick boot under emulation it omits the 64-bit kernel's decompressor, module signatures, and
(by the command line) the probing of hardware that no virtual machine has.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from importlib.resources import as_file, files as resources
from typing import TYPE_CHECKING

from corral.node.images.demo import contents, deb, kernel, loader, lz4, packages, parameters
from corral.node.images.demo.disk import write_disk
from corral.node.images.demo.errors import DemoError
from corral.node.reseed_program import RESEED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Suffixes of the releases of the two kernels.
WIDE_KERNEL, OTHER_KERNEL = "cloud-amd64", "686"
# Between a kernel and its initramfs, for the kernel's early page tables.
_GAP_BYTES = 4 * 1024 * 1024


async def build_demo(target: Path, *, cache: Path, progress: Callable[[str], None]) -> Path:
    """Write the demo guest's disk (raw, 64 MiB) to `target`, and return that.

    Packages are kept in `cache`, so that a second build needs no network. `progress` is called
    with a line for each step. Raises DemoError.
    """
    found = await packages.fetch(cache, progress)
    progress("unpacking")
    size_bytes = await asyncio.to_thread(_build, found, target)
    progress(f"{target} is ready: {size_bytes // 10**6} MB")
    return target


def demo_recipe_digest(cache: Path | None = None) -> str:
    """Return a digest of the files of this package, of RESEED, and of the names of Debian packages.

    Without a `cache`, or before the first build, the Debian packages' versions do not count.
    """
    digest = hashlib.sha256(RESEED)
    with as_file(resources(__package__)) as directory:
        for path in sorted(_recipe_files(directory)):
            digest.update(f"{path.relative_to(directory)}\n".encode() + path.read_bytes())
    fetched = packages.fetched(cache) if cache else []
    for name in sorted(package.name for package in fetched):
        digest.update(f"{name}\n".encode())
    return digest.hexdigest()[:16]


def _recipe_files(directory: Path) -> list[Path]:
    return [
        path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]


def _build(found: list[Path], target: Path) -> int:
    files: dict[str, bytes] = {}
    for package in found:
        files |= deb.files(package, contents.is_included)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_disk(temporary, _images(files), contents.root(files))
        temporary.replace(target)
        return target.stat().st_size
    except OSError as error:
        raise DemoError(
            f"the disk cannot be written to {target}: {error}",
            "free space, or choose another place",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _images(files: dict[str, bytes]) -> list[loader.Image]:
    """Return the two kernels in the boot loader's format."""
    wide, other = (contents.boot(files, kind) for kind in (WIDE_KERNEL, OTHER_KERNEL))
    other_kernel = kernel.unpack(other.kernel)
    initramfs = kernel.Part(other_kernel.end + _GAP_BYTES, lz4.pack(other.initramfs))
    return [
        loader.image(kernel.unpack(wide.kernel, wide.initramfs), parameters.WIDE),
        loader.image(other_kernel, parameters.OTHER, initramfs),
    ]
