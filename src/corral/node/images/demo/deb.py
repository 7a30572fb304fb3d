"""Extracts files from Debian packages: an `ar` archive with a compressed `tar`."""

from __future__ import annotations

import io
import posixpath
import tarfile
from typing import TYPE_CHECKING

from corral.failures import describe
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AR_MAGIC = b"!<arch>\n"


def files(package: Path, is_included: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the included files of `package` by path, without leading slash.

    Links among them are followed; other links are omitted. Raises DemoError if the package is
    damaged.
    """
    found: dict[str, bytes] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_data(package.read_bytes())), mode="r|*") as data:
            for member in data:
                path = member.name.removeprefix("./")
                if member.issym() and is_included(path):
                    links[path] = posixpath.normpath(
                        posixpath.join("/", posixpath.dirname(path), member.linkname)
                    ).lstrip("/")
                elif is_included(path) and (content := data.extractfile(member)):
                    found[path] = content.read()
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise DemoError(
            f"{package.name} is damaged: {describe(error)}", f"delete {package} and build again"
        ) from error
    return found | {link: found[target] for link, target in links.items() if target in found}


def _data(archive: bytes) -> bytes:
    if not archive.startswith(_AR_MAGIC):
        raise ValueError("not a Debian package")
    at = len(_AR_MAGIC)
    while at + 60 <= len(archive):
        name, size = archive[at : at + 16].strip(), int(archive[at + 48 : at + 58])
        at += 60
        if name.startswith(b"data.tar"):
            return archive[at : at + size]
        at += size + size % 2
    raise ValueError("no data in it")
