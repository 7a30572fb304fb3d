"""Writes the kernel's initramfs: a cpio archive in the `newc` format.

Every entry belongs to root and has no time, so that builds are reproducible. The format is in the
kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, directory, symbolic link or device node; `path` has no leading slash."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(path: str, permissions: int = 0o755) -> Entry:
    return Entry(path, stat.S_IFDIR | permissions)


def file(path: str, content: bytes, permissions: int = 0o644) -> Entry:
    return Entry(path, stat.S_IFREG | permissions, content)


def link(path: str, target: str) -> Entry:
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, major: int, minor: int, permissions: int = 0o600) -> Entry:
    return Entry(path, stat.S_IFCHR | permissions, device=(major, minor))


def archive(entries: list[Entry]) -> bytes:
    """Return the archive of `entries` and their parent directories."""
    out = bytearray()
    for number, entry in enumerate(complete(entries), start=1):
        out += _member(entry, number)
    return bytes(out + _member(Entry("TRAILER!!!", 0), 0))


def complete(entries: list[Entry]) -> list[Entry]:
    """Return `entries` and their parents sorted by path; the later of two duplicates wins."""
    every = {entry.path: entry for entry in _parents(entries) + entries}
    return [every[path] for path in sorted(every)]


def _parents(entries: list[Entry]) -> list[Entry]:
    paths = {os.fspath(parent) for entry in entries for parent in _ancestors(entry.path)}
    return [directory(path) for path in sorted(paths)]


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _member(entry: Entry, number: int) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    owner = group = time = 0
    numbers = [
        number, entry.mode, owner, group, links, time, len(entry.content),
        0, 0, *entry.device, len(name), 0,
    ]  # fmt: skip
    header = b"070701" + b"".join(b"%08X" % value for value in numbers)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
