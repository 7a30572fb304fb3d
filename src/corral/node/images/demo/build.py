"""Builds the demo guest: packages -> kernels and root directory -> disk.

What stands in the way of a quick boot under emulation is left out: the kernels' decompressors,
module signatures, and (by the command line) the probing of hardware that no virtual machine has.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from importlib.resources import as_file, files as resources
from typing import TYPE_CHECKING

from corral.node.images.demo import contents, deb, kernel, loader, packages
from corral.node.images.demo.disk import write_disk
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How the releases of the two kernels end.
WIDE_KERNEL, OTHER_KERNEL = "cloud-amd64", "686"


async def build_demo(target: Path, *, cache: Path, progress: Callable[[str], None]) -> Path:
    """Writes the demo guest's disk (raw, 100 MB) to `target` and returns that.

    Packages are kept in `cache`, so that a second build needs no network. `progress` is called
    with a line for each step. Raises DemoError.
    """
    found = await packages.fetch(cache, progress)
    progress("unpacking")
    size_bytes = await asyncio.to_thread(_build, found, target)
    progress(f"{target} is ready: {size_bytes // 10**6} MB")
    return target


def demo_recipe_digest(cache: Path | None = None) -> str:
    """Changes when the disk would: a digest of this package and of the fetched packages' names.

    Without a `cache`, or before the first build, the packages count by name only.
    """
    digest = hashlib.sha256()
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
        files |= deb.files(package, _is_wanted)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_disk(temporary, _top(files), contents.root(files))
        temporary.replace(target)
        return target.stat().st_size
    except OSError as error:
        raise DemoError(
            f"the disk cannot be written to {target}: {error}",
            "free space, or choose another place",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _top(files: dict[str, bytes]) -> dict[str, bytes]:
    """What the boot loader reads."""
    wide, other = (contents.boot(files, kind) for kind in (WIDE_KERNEL, OTHER_KERNEL))
    return loader.files(
        files,
        wide=kernel.unpack(wide.kernel, wide.initramfs),
        other=contents.Boot(kernel.unpack(other.kernel), other.initramfs),
    )


def _is_wanted(path: str) -> bool:
    return contents.is_wanted(path) or path in {loader.PROGRAM, *loader.LIBRARIES}
