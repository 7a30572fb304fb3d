"""The boot loader: selects a kernel by the machine's PCI devices, and loads it.

The 64-bit kernel idles without timer ticks, but has drivers for virtio only. Machines with other
devices get the 32-bit one, which has drivers for all.

Each kernel is one file of the disk, with a table of its parts: the loader reads them through the
firmware, 60 kB at a time, and copies them to their addresses. Boot loaders with file systems read
16 kB at a time and copy more than once, which costs an emulated CPU a tenth of a second.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.node.images.demo.errors import DemoError
from corral.node.images.demo.kernel import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corral.node.images.demo.kernel import Kernel

BLOCK = 2048  # the unit of all disk addresses: a CD-ROM's sector
ADDRESS = 0x8000  # of the loader in memory
SIZE = 2048  # of the loader

# Devices that need the 32-bit kernel: vendor and device.
_OTHERS = (
    (0x8086, 0x2922),  # SATA (AHCI)
    (0x8086, 0x100E),  # e1000
    (0x8086, 0x10D3),  # e1000e
    (0x10EC, 0x8139),  # rtl8139
    (0x8086, 0x25AB),  # the watchdog i6300esb
)

# Offsets of the loader's data, after its code.
_PACKET, _DESCRIPTORS = 0x1D0, 0x1F0
_DEVICES_AT, _WIDE_AT, _OTHER_AT = 0x200, 0x280, 0x540

# Below the kernels: their real-mode setup, whose heap ends before the command line.
_SETUP, _HEAP_END, _COMMAND_LINE = 0x40000, 0xE000, 0x4E000
_HINT = "another version of the kernel package may be needed: please report it"


@dataclass(frozen=True, slots=True)
class Row:
    """A part: `blocks` from block `first` of the file, loaded at `address`; zeros if None."""

    first: int | None
    blocks: int
    address: int


@dataclass(frozen=True, slots=True)
class Image:
    """A kernel as one file, with the table of its parts."""

    content: bytes
    rows: tuple[Row, ...]


def image(kernel: Kernel, parameters: Sequence[str], initramfs: Part | None = None) -> Image:
    """Return `kernel` with its command line, and with `initramfs` unless it contains that."""
    line = " ".join(parameters).encode() + b"\0"
    if len(line) > BLOCK:
        raise DemoError("the kernel's command line is too long", "please report it")
    setup = bytearray(kernel.setup)
    struct.pack_into("<H", setup, 0x1FA, 0xFFFF)  # vid_mode: as it is
    struct.pack_into("<BB", setup, 0x210, 0xFF, setup[0x211] | 0x80)  # loader, loadflags: heap
    struct.pack_into("<H", setup, 0x224, _HEAP_END - 0x200)  # heap_end_ptr
    struct.pack_into("<I", setup, 0x228, _COMMAND_LINE)  # cmd_line_ptr
    if initramfs:
        struct.pack_into("<II", setup, 0x218, initramfs.address, len(initramfs.content))
    content, rows = bytearray(), []
    parts = [Part(_SETUP, bytes(setup)), Part(_COMMAND_LINE, line), *kernel.parts]
    for part in parts + ([initramfs] if initramfs else []):
        blocks = -(-len(part.content) // BLOCK)
        if part.content.count(0) == len(part.content):
            rows.append(Row(None, blocks, part.address))
        else:
            rows.append(Row(len(content) // BLOCK, blocks, part.address))
            content += part.content.ljust(blocks * BLOCK, b"\0")
    return Image(bytes(content), tuple(rows))


def program(wide: tuple[Image, int], other: tuple[Image, int]) -> bytes:
    """Return the loader for two kernels, each with its first block on the disk."""
    devices = b"".join(struct.pack("<HH", device, vendor) for vendor, device in _OTHERS)
    tables = {_DEVICES_AT: devices, _WIDE_AT: _table(*wide), _OTHER_AT: _table(*other)}
    out = bytearray(_CODE.ljust(SIZE, b"\0"))
    ends = (*list(tables)[1:], SIZE)
    for (at, table), end in zip(tables.items(), ends, strict=True):
        if at + len(table) >= end:  # what follows a table's last row is zero
            raise DemoError("the kernel is in too many parts", _HINT)
        out[at : at + len(table)] = table
    return bytes(out)


def _table(image: Image, place: int) -> bytes:
    return b"".join(
        struct.pack("<III", 0 if row.first is None else place + row.first, row.blocks, row.address)
        for row in image.rows
    )


_INSTRUCTIONS = b"".join(
    (
        # The segments are 0, and the stack ends below the boot sector.
        b"\xfc",  # cld
        b"\x31\xc0",  # xor ax, ax
        b"\x8e\xd0",  # mov ss, ax
        b"\xbc\x00\x7c",  # mov sp, 0x7c00
        b"\x8e\xd8",  # mov ds, ax
        b"\x8e\xc0",  # mov es, ax
        b"\xea\x11\x80\x00\x00",  # jmp 0:0x8011
        b"\xfb",  # sti
        b"\x88\x16\xc0\x81",  # mov [drive], dl
        b"\xe4\x92",  # in al, 0x92: all of the memory's address lines
        b"\x0c\x02",  # or al, 2
        b"\xe6\x92",  # out 0x92, al
        # How large are the drive's sectors?
        b"\xbe\x00\x06",  # mov si, 0x600
        b"\xc7\x04\x1a\x00",  # mov word [si], 26
        b"\xb4\x48",  # mov ah, 0x48
        b"\xcd\x13",  # int 0x13
        b"\x0f\x82\xe8\x00",  # jc fail
        b"\x81\x7c\x18\x00\x08",  # cmp word [si + 24], 2048
        b"\x74\x05",  # je same
        b"\xc6\x06\xc1\x81\x02",  # mov byte [shift], 2
        # Which kernel?
        b"\xbe\x00\x82",  # same: mov si, devices
        b"\xbf\x80\x82",  # mov di, wide
        b"\x8b\x0c",  # next: mov cx, [si]
        b"\x8b\x54\x02",  # mov dx, [si + 2]
        b"\xe3\x11",  # jcxz row
        b"\x83\xc6\x04",  # add si, 4
        b"\x56",  # push si
        b"\x31\xf6",  # xor si, si
        b"\xb8\x02\xb1",  # mov ax, 0xb102: PCI BIOS, find device
        b"\xcd\x1a",  # int 0x1a
        b"\x5e",  # pop si
        b"\x72\xeb",  # jc next
        b"\xbf\x40\x85",  # mov di, other
        # How much of this row is next?
        b"\x66\x8b\x5d\x04",  # row: mov ebx, [di + 4]
        b"\x66\x85\xdb",  # test ebx, ebx
        b"\x0f\x84\x9c\x00",  # jz enter
        b"\x66\x83\xfb\x1e",  # cmp ebx, 30
        b"\x76\x06",  # jbe enough
        b"\x66\xbb\x1e\x00\x00\x00",  # mov ebx, 30
        b"\x66\x29\x5d\x04",  # enough: sub [di + 4], ebx
        b"\x66\x8b\x05",  # mov eax, [di]
        b"\x66\x85\xc0",  # test eax, eax
        b"\x74\x22",  # jz place
        b"\x66\x01\x1d",  # add [di], ebx
        # Read that.
        b"\x8a\x0e\xc1\x81",  # mov cl, [shift]
        b"\x66\xd3\xe0",  # shl eax, cl
        b"\x66\xa3\xd8\x81",  # mov [packet.first], eax
        b"\x89\xd8",  # mov ax, bx
        b"\xd3\xe0",  # shl ax, cl
        b"\xa3\xd2\x81",  # mov [packet.count], ax
        b"\xbe\xd0\x81",  # mov si, packet
        b"\x8a\x16\xc0\x81",  # mov dl, [drive]
        b"\xb4\x42",  # mov ah, 0x42
        b"\xcd\x13",  # int 0x13
        b"\x72\x79",  # jc fail
        # Copy it, or clear the place; where all memory can be addressed.
        b"\x66\x8b\x15",  # place: mov edx, [di]
        b"\x66\x89\xd9",  # mov ecx, ebx
        b"\x66\xc1\xe1\x09",  # shl ecx, 9
        b"\x66\xbe\x00\x00\x02\x00",  # mov esi, 0x20000
        b"\x66\x8b\x6d\x08",  # mov ebp, [di + 8]
        b"\x66\x87\xef",  # xchg edi, ebp
        b"\xfa",  # cli
        b"\x0f\x01\x16\xe0\x81",  # lgdt [table]
        b"\x0f\x20\xc0",  # mov eax, cr0
        b"\x0c\x01",  # or al, 1
        b"\x0f\x22\xc0",  # mov cr0, eax
        b"\xbb\x08\x00",  # mov bx, 8
        b"\x8e\xdb",  # mov ds, bx
        b"\x8e\xc3",  # mov es, bx
        b"\x66\x85\xd2",  # test edx, edx
        b"\x74\x04",  # jz clear
        b"\x67\x66\xf3\xa5",  # rep movsd: leaves nothing to be cleared
        b"\x66\x92",  # clear: xchg eax, edx
        b"\x66\x31\xc0",  # xor eax, eax
        b"\x67\x66\xf3\xab",  # rep stosd
        b"\x66\x92",  # xchg eax, edx
        b"\x24\xfe",  # and al, ~1
        b"\x0f\x22\xc0",  # mov cr0, eax
        b"\x31\xdb",  # xor bx, bx
        b"\x8e\xdb",  # mov ds, bx
        b"\x8e\xc3",  # mov es, bx
        b"\xfb",  # sti
        b"\x66\x87\xef",  # xchg edi, ebp
        b"\x66\x89\x6d\x08",  # mov [di + 8], ebp
        b"\x66\x83\x7d\x04\x00",  # cmp dword [di + 4], 0
        b"\x0f\x85\x5f\xff",  # jne row
        b"\x83\xc7\x0c",  # add di, 12
        b"\xe9\x59\xff",  # jmp row
        # Enter the kernel's real-mode part.
        b"\xfa",  # enter: cli
        b"\xb8\x00\x40",  # mov ax, 0x4000
        b"\x8e\xd8",  # mov ds, ax
        b"\x8e\xc0",  # mov es, ax
        b"\x8e\xe0",  # mov fs, ax
        b"\x8e\xe8",  # mov gs, ax
        b"\x8e\xd0",  # mov ss, ax
        b"\xbc\x00\xe0",  # mov sp, 0xe000
        b"\xfb",  # sti
        b"\xea\x00\x00\x20\x40",  # jmp 0x4020:0
        b"\xcd\x18",  # fail: int 0x18, another disk
    )
)
_CODE = b"".join(
    (
        _INSTRUCTIONS.ljust(_PACKET, b"\0"),  # drive and shift are among the zeros
        struct.pack("<HHHHQ", 16, 0, 0, 0x2000, 0),  # how many blocks to read, to where, from where
        struct.pack("<HI", 15, ADDRESS + _DESCRIPTORS).ljust(16, b"\0"),
        struct.pack("<QQ", 0, 0x00CF92000000FFFF),  # none, and one for all memory
    )
)
# The first sector of a hard disk reads the loader, which follows it.
BOOT_SECTOR = b"".join(
    (
        b"\xfc\x31\xc0\x8e\xd8\x8e\xd0",  # cld; xor ax, ax; mov ds, ax; mov ss, ax
        b"\xbc\x00\x7c",  # mov sp, 0x7c00
        b"\xbe\x20\x7c\xb4\x42\xcd\x13",  # mov si, packet; mov ah, 0x42; int 0x13
        b"\x72\x05\xea\x00\x80\x00\x00",  # jc fail; jmp 0:ADDRESS
        b"\xcd\x18".ljust(8, b"\0"),  # fail: int 0x18
        struct.pack("<HHHHQ", 16, SIZE // 512, ADDRESS, 0, 1),  # packet
    )
)
