"""Splits a saved guest into the pages of its memory and the state of its devices.

QEMU writes both as one stream of sections (its docs/devel/migration): a header, the name of the
machine type, the memory as the parts of the section "ram", and then each device.  A QEMU that
maps the pages from a file reads the rest as a saved guest of which no page of that memory was sent:
QEMU loads the blocks of memory that a stream lists, and this one no longer lists that of the file.
Other blocks, such as video memory, stay in the stream.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from corral.node.hypervisor import GuestError

_MAGIC: Final = b"QEVM\0\0\0\3"
_CONFIGURATION, _START, _PART, _END, _FOOTER = 0x07, 0x01, 0x02, 0x03, 0x7E
_ZERO, _SIZE, _PAGE, _LAST, _CONTINUE = 0x02, 0x04, 0x08, 0x10, 0x20
"""Flags of a record of memory, in the low bits of an address."""
_FLAGS: Final = 0xFFF
_PAGE_BYTES: Final = 4096
_LEAST_RECORD_BYTES: Final = 9
"""Bytes of a page of zeros: QEMU sends each page at least once."""
_RAM: Final = b"ram"
_RAM_VERSION: Final = 4


class StreamError(GuestError):
    """A saved guest is not as this version of corral reads it."""


def split(saved: Path, memory: Path, devices: Path, block: str) -> None:
    """Write the pages of one block of memory to a sparse file, and the rest of a saved guest.

    ``memory`` and ``devices`` must not exist.  Raises StreamError and OSError.
    """
    with (
        saved.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
        memory.open("xb") as pages,
        devices.open("xb") as rest,
    ):
        for part in _Splitter(content, block.encode(), pages.fileno()).parts():
            rest.write(part)


class _Splitter:
    """One pass over a stream; ``file`` gets the pages of ``block``."""

    def __init__(self, content: mmap.mmap, block: bytes, file: int) -> None:
        self._content = content
        self._at = 0
        self._pages = _Pages(file)
        self._own = block
        self._block = b""
        """The block that the latest page was of."""

    def parts(self) -> Iterator[bytes]:
        """Iterate over the parts of the stream that remains."""
        yield self._header()
        while (kind := self._content[self._at]) in {_START, _PART, _END}:
            yield from self._section(kind)
        if not self._pages.size:
            raise StreamError(f"the saved guest has no memory called {self._own.decode()}")
        yield self._content[self._at :]

    def _header(self) -> bytes:
        """Return the header with the name of the machine type."""
        if self._take(len(_MAGIC)) != _MAGIC or self._number(1) != _CONFIGURATION:
            raise StreamError("the saved guest has a header that is not known")
        self._take(self._number(4))
        return self._content[: self._at]

    def _section(self, kind: int) -> Iterator[bytes]:
        """Iterate over what is kept of a part of the memory."""
        begin = self._at
        self._take(1)
        section = self._take(4)
        if kind == _START:
            name, _ = self._take(self._number(1)), self._take(4)
            if name != _RAM or self._number(4) != _RAM_VERSION:
                raise StreamError(f"the saved guest has a section {name!r} that is not known")
        yield self._content[begin : self._at]
        yield from self._records()
        footer = self._take(5)
        if footer != bytes([_FOOTER]) + section:
            raise StreamError("a part of the memory has no end")
        yield footer

    def _records(self) -> Iterator[bytes]:
        """Iterate over the records of a part that are not of the block."""
        while True:
            head = self._number(8)
            flags, address = head & _FLAGS, head & ~_FLAGS
            if flags == _LAST:
                yield head.to_bytes(8)
                return
            if flags == _SIZE:
                yield self._sizes(address)
                continue
            if not flags & _CONTINUE:
                self._block = self._take(self._number(1))
            kind = flags & ~_CONTINUE
            if kind not in {_ZERO, _PAGE}:
                raise StreamError(f"a page of the memory has flags that are not known: {flags:#x}")
            page = self._take(_PAGE_BYTES if kind == _PAGE else 1)
            if self._block == self._own:
                self._pages.write(address, page if kind == _PAGE else b"")
            else:  # with its name, since the page before it may have been left out
                name = bytes([len(self._block)]) + self._block
                yield (address | kind).to_bytes(8) + name + page

    def _sizes(self, total: int) -> bytes:
        """Return the list of blocks without the own one."""
        listed, left = b"", total
        while left > 0:
            name, length = self._take(self._number(1)), self._number(8)
            left -= length
            if name == self._own:
                if length > len(self._content) // _LEAST_RECORD_BYTES * _PAGE_BYTES:
                    raise StreamError("the saved guest has fewer pages than it says")
                self._pages.resize(length)
                total -= length
            else:
                listed += bytes([len(name)]) + name + length.to_bytes(8)
        return (total | _SIZE).to_bytes(8) + listed

    def _take(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if self._at >= len(self._content):
            raise StreamError("the saved guest is cut short")
        return self._content[begin : self._at]

    def _number(self, length: int) -> int:
        return int.from_bytes(self._take(length))


class _Pages:
    """The file that pages are written to; those of zeros are holes."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._written = bytearray()
        """For each page whether it has been written."""

    @property
    def size(self) -> int:
        """The number of pages; 0 before ``resize``."""
        return len(self._written)

    def resize(self, length: int) -> None:
        os.ftruncate(self._file, length)
        self._written = bytearray(-(-length // _PAGE_BYTES))

    def write(self, address: int, content: bytes) -> None:
        """Write a page; empty content is that of zeros, as QEMU sends it."""
        number = address // _PAGE_BYTES
        if number >= self.size:
            raise StreamError("the saved guest has a page outside of its memory")
        if content or self._written[number]:
            os.pwrite(self._file, content or bytes(_PAGE_BYTES), address)
            self._written[number] = 1
