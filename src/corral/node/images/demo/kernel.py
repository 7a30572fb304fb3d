"""Takes the decompressor out of a Linux kernel for the PC: it then boots at once.

Unpacking a kernel in the guest takes over a second where the processor is emulated. What is left is
the real-mode part that Debian built (kernel: Documentation/arch/x86/boot.rst), and what lies where
in memory: a boot loader puts it there.
"""

from __future__ import annotations

import lzma
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.node.images.demo import lz4
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENTRY = 0x100000  # where a few instructions of ours are, with page tables for the 64-bit kernel
_ENTRY_SIZE = 0x4000
_UNPACKER_SIZE = 0x80
_ELF_LOAD = 1
_PAGE = 0x1000
_SMALLEST_HOLE = 0x10000
_WIDE = 2
_HINT = "another version of the kernel package may be needed: please report it"

# Sections of the 64-bit kernel. The unwinder's tables serve backtraces only. The types serve BPF.
_UNWINDER = (".orc_unwind_ip", ".orc_unwind")
_TYPES = ".BTF"
_TYPES_LAST = ".BTF_ids"  # which go with them, and end what is only read
_SCRATCH = ".init.scratch"  # for encrypting memory: nobody's otherwise, and the last
_RETURNS = ".return_sites"
_DATA = ".data"

_VIRTUAL = 0xFFFFFFFF80000000  # where a kernel sees its first physical address
_JUMP, _RETURN = 0xE9, b"\xc3\xcc\xcc\xcc\xcc"
_LOAD_ADDRESS, _PLACES_OF_END = rb"\x48\x8d\x84.", 2  # lea rax, [… + …]
_MOVE_RDX, _MOVE_RSI, _MOVE_RDI = b"\x48\xc7\xc2", b"\x48\xc7\xc6", b"\x48\xc7\xc7"


@dataclass(frozen=True, slots=True)
class Part:
    """What lies in memory from `address` on."""

    address: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as it starts: its real-mode part, which enters the others, and where these end.

    Up to `end` it needs memory before it looks for more.
    """

    setup: bytes
    parts: tuple[Part, ...]
    end: int


@dataclass(frozen=True, slots=True)
class _Segment:
    offset: int
    address: int
    file_size: int
    memory_size: int


def unpack(image: bytes, initramfs: bytes = b"") -> Kernel:
    """The kernel of the bzImage `image`. Raises DemoError if it is none that we know.

    A 64-bit kernel takes `initramfs` with it, in the room of tables that nobody needs here: the
    kernel gives that memory back once it has read the files.
    """
    if image[0x202:0x206] != b"HdrS":
        raise DemoError("the kernel package holds no bzImage", _HINT)
    setup = bytearray(image[: (image[0x1F1] + 1) * 512])
    elf = _unpacked(_payload(image, len(setup)))
    try:
        return _wide(setup, elf, initramfs) if elf[4] == _WIDE else _narrow(setup, elf)
    except struct.error as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error


def _payload(image: bytes, setup_size: int) -> bytes:
    offset, length = struct.unpack_from("<II", image, 0x248)
    return image[setup_size + offset :][: length - 4]  # the size of what it holds follows it


def _unpacked(payload: bytes) -> bytes:
    try:
        elf = lz4.unpack(payload) if lz4.is_legacy(payload) else lzma.decompress(payload)
    except (lzma.LZMAError, ValueError) as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error
    if elf[:5] not in {b"\x7fELF\x01", b"\x7fELF\x02"}:
        raise DemoError("the kernel is no ELF file", _HINT)
    return elf


def _segments(elf: bytes, *, is_wide: bool) -> list[_Segment]:
    """What of the ELF file lies in memory, by address."""
    if is_wide:
        table, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<H", elf, 56)
        rows = [struct.unpack_from("<II6Q", elf, table + 56 * index) for index in range(count)]
        found = [_Segment(row[2], row[4], row[5], row[6]) for row in rows if row[0] == _ELF_LOAD]
    else:
        table, count = *struct.unpack_from("<I", elf, 28), *struct.unpack_from("<H", elf, 44)
        rows = [struct.unpack_from("<8I", elf, table + 32 * index) for index in range(count)]
        found = [_Segment(row[1], row[3], row[4], row[5]) for row in rows if row[0] == _ELF_LOAD]
    return sorted(found, key=lambda segment: segment.address)


def _loaded(elf: bytes, segments: list[_Segment]) -> tuple[int, bytearray]:
    """The ELF file as it lies in memory: its first address, and its bytes from there."""
    if not segments or segments[0].address < _ENTRY + _ENTRY_SIZE:
        raise DemoError("the kernel is where its boot loader would be", _HINT)
    start, memory = segments[0].address, bytearray()
    for part in segments:
        memory += bytes(part.address - start - len(memory))
        memory += elf[part.offset : part.offset + part.file_size]
    return start, memory


# ------------------------------------------------------------------ of the 64-bit kernel


def _wide(setup: bytearray, elf: bytes, initramfs: bytes) -> Kernel:
    start, memory = _loaded(elf, _segments(elf, is_wide=True))
    sections = _sections(elf)
    if not {*_UNWINDER, _TYPES, _TYPES_LAST, _SCRATCH, _RETURNS, _DATA} <= sections.keys():
        raise DemoError("the kernel lacks sections that were expected", _HINT)
    _return_at_once(memory, start, sections[_RETURNS])
    types = sections[_TYPES]
    _free_types(memory, sections)
    _clear(memory, range(types.start - start, types.stop - start))
    room = _give_room(memory, start, range(*_pages(sections, _UNWINDER)), initramfs)
    struct.pack_into("<III", setup, 0x214, _ENTRY, room.start, len(room))  # and the ramdisk
    parts = (Part(_ENTRY, _entry(start)), *_parts(start, memory, types))
    return Kernel(bytes(setup), parts, sections[_SCRATCH].start)


def _return_at_once(memory: bytearray, start: int, sites: range) -> None:
    """Writes a `ret` wherever the kernel has a jump to one, and empties its list of these places.

    Without mitigations it does the same as it starts, which takes an emulated processor a quarter
    of a second for 48 000 places.
    """
    places = [
        at + struct.unpack_from("<i", memory, at)[0]
        for at in range(sites.start - start, sites.stop - start, 4)
    ]
    loop = _MOVE_RSI + _seen(sites.stop) + _MOVE_RDI + _seen(sites.start)
    if memory.count(loop) != 1 or any(memory[place] != _JUMP for place in places):
        return  # a kernel that does it in another way does it itself
    for place in places:
        memory[place : place + len(_RETURN)] = _RETURN
    _replace(memory, loop, _MOVE_RSI + _seen(sites.start) + _MOVE_RDI + _seen(sites.start))


def _free_types(memory: bytearray, sections: Mapping[str, range]) -> None:
    """Has the kernel give back the memory of its types, 4 MB, with the gap that follows them.

    They are the last of what is only read. Where that ends is told in the kernel's instructions:
    in `mark_rodata_ro`, rounded up to a page there, and where it is kept from being written to.
    """
    end = -(-sections[_TYPES_LAST].stop // _PAGE) * _PAGE
    new_end = -(-sections[_TYPES].start // _PAGE) * _PAGE
    gap = _MOVE_RDX + _seen(sections[_DATA].start)
    freed = _MOVE_RSI + _seen(end + _PAGE - 1) + gap
    kept = set(re.findall(_LOAD_ADDRESS + re.escape(_seen(end)), memory, re.DOTALL))
    if memory.count(freed) != 1 or sum(map(memory.count, kept)) != _PLACES_OF_END:
        return  # a kernel that does it in another way keeps them
    _replace(memory, freed, _MOVE_RSI + _seen(new_end + _PAGE - 1) + gap)
    for instruction in kept:
        _replace(memory, instruction, instruction[:-4] + _seen(new_end))


def _seen(address: int) -> bytes:
    """A physical address as the kernel's instructions have it."""
    return struct.pack("<I", address + _VIRTUAL & 0xFFFFFFFF)


def _replace(memory: bytearray, old: bytes, new: bytes) -> None:
    """Both are of one length, so that nothing else moves."""
    at = memory.find(old)
    while at >= 0:
        memory[at : at + len(old)] = new
        at = memory.find(old, at + len(old))


def _clear(memory: bytearray, place: range) -> None:
    memory[place.start : place.stop] = bytes(len(place))


def _pages(sections: Mapping[str, range], names: tuple[str, ...]) -> tuple[int, int]:
    """The whole pages of sections that follow each other."""
    first, last = sections[names[0]], sections[names[-1]]
    return -(-first.start // _PAGE) * _PAGE, last.stop // _PAGE * _PAGE


def _give_room(memory: bytearray, start: int, room: range, initramfs: bytes) -> range:
    """Puts `initramfs` into `memory`, where the room is, and returns that.

    The room is declared to be the initramfs as a whole: so the kernel frees all of it.
    """
    if len(initramfs) > len(room):
        raise DemoError(f"the initramfs of {len(initramfs)} bytes is too large", _HINT)
    _clear(memory, range(room.start - start, room.stop - start))
    memory[room.start - start : room.start - start + len(initramfs)] = initramfs
    return room


def _parts(start: int, memory: bytearray, unused: range) -> tuple[Part, ...]:
    """What is in `memory`, with holes that are worth it as parts of zeros; nothing of `unused`."""
    parts: list[Part] = []
    below = 0
    for place in _filled(memory):
        hole = range(start + below, start + place.start)
        if hole and not (unused.start <= hole.start and hole.stop <= unused.stop):
            parts.append(Part(hole.start, bytes(len(hole))))
        parts.append(Part(start + place.start, bytes(memory[place.start : place.stop])))
        below = place.stop
    return tuple(parts)


def _filled(memory: bytearray) -> list[range]:
    """Where `memory` is not empty, but for holes that are not worth it."""
    empty = bytes(_PAGE)
    found: list[range] = []
    for at in range(0, len(memory), _PAGE):
        if memory[at : at + _PAGE] == empty[: len(memory) - at]:
            continue
        if found and at - found[-1].stop < _SMALLEST_HOLE:
            found[-1] = range(found[-1].start, at + _PAGE)
        else:
            found.append(range(at, at + _PAGE))
    memory += bytes(-len(memory) % _PAGE)
    return found


def _sections(elf: bytes) -> dict[str, range]:
    """Where each named section of the kernel lies in memory."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    rows = [struct.unpack_from("<II4QIIQQ", elf, table + 64 * index) for index in range(count)]
    text = elf[rows[names][4] :] if rows else b""
    return {
        text[row[0] : text.index(b"\0", row[0])].decode(): range(
            row[3] - _VIRTUAL, row[3] - _VIRTUAL + row[5]
        )
        for row in rows
        if row[3] >= _VIRTUAL
    }


def _entry(start: int) -> bytes:
    """Instructions that enter 64-bit mode and jump to `start`.

    As boot.rst asks of a boot loader: all memory that is looked at is mapped to itself, and rsi
    holds boot_params.
    """
    tables = _ENTRY + _PAGE
    segments, wide_code = (_ENTRY + at for at in (0x800, 0x100))
    enter = b"".join(
        (
            b"\x0f\x01\x15" + struct.pack("<I", segments + 32),  # lgdt
            b"\x0f\x20\xe0\x83\xc8\x20\x0f\x22\xe0",  # cr4 |= PAE
            b"\xb8" + struct.pack("<I", tables) + b"\x0f\x22\xd8",  # cr3 = tables
            b"\xb9" + struct.pack("<I", 0xC0000080) + b"\x0f\x32",  # rdmsr EFER
            b"\x0d" + struct.pack("<I", 0x100) + b"\x0f\x30",  # EFER |= LME
            b"\x0f\x20\xc0\x0d" + struct.pack("<I", 0x80000001) + b"\x0f\x22\xc0",  # cr0 |= PG, PE
            b"\xea" + struct.pack("<IH", wide_code, 0x10),  # jmp 0x10:wide_code
        )
    )
    jump = b"\xb8" + struct.pack("<I", start) + b"\xff\xe0"  # mov eax, start; jmp rax
    code = enter.ljust(0x100, b"\0") + jump
    # No segment, none, 64-bit code, data; then the table's own size and address.
    descriptors = struct.pack("<4Q", 0, 0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF)
    page = code.ljust(0x800, b"\0") + descriptors + struct.pack("<HI", 31, segments)
    return page.ljust(_PAGE, b"\0") + _identity_map(tables)


def _identity_map(tables: int) -> bytes:
    """Page tables that map the first GiB to itself, in pages of 2 MiB."""
    present, large = 0x3, 0x83
    levels = [struct.pack("<Q", tables + depth * _PAGE | present) for depth in (1, 2)]
    leaves = b"".join(struct.pack("<Q", number << 21 | large) for number in range(512))
    return b"".join(level.ljust(_PAGE, b"\0") for level in levels) + leaves


# ------------------------------------------------------------------ of the 32-bit kernel


def _narrow(setup: bytearray, elf: bytes) -> Kernel:
    """It is packed, for few machines need it, and the disk is to be small."""
    segments = _segments(elf, is_wide=False)
    start, memory = _loaded(elf, segments)
    packed = lz4.pack_block(bytes(memory))
    if _ENTRY + _UNPACKER_SIZE + len(packed) > start:
        raise DemoError("the kernel is too large to be unpacked to its place", _HINT)
    struct.pack_into("<I", setup, 0x214, _ENTRY)
    part = Part(_ENTRY, _unpacker(start, len(packed)) + packed)
    return Kernel(bytes(setup), (part,), max(each.address + each.memory_size for each in segments))


def _unpacker(start: int, size: int) -> bytes:
    """Instructions that unpack the block behind them to `start`, and jump there; esi is kept.

    See LZ4's lz4_Block_format.md.
    """
    source = _ENTRY + _UNPACKER_SIZE
    return b"".join(
        (
            b"\xfc\x89\xf2\xbc\x00\x7c\x00\x00",  # cld; mov edx, esi; mov esp, 0x7c00
            b"\xbe" + struct.pack("<I", source),  # mov esi, source
            b"\xbf" + struct.pack("<I", start),  # mov edi, start
            b"\xbd" + struct.pack("<I", source + size),  # mov ebp, end
            b"\x31\xc0\xac\x89\xc3",  # next: xor eax, eax; lodsb; mov ebx, eax
            b"\xc1\xe8\x04\xe8\x2f\x00\x00\x00",  # shr eax, 4; call length
            b"\xf3\xa4\x39\xee\x73\x20",  # rep movsb; cmp esi, ebp; jae done
            b"\x66\xad\x52\x0f\xb7\xd0",  # lodsw; push edx; movzx edx, ax
            b"\x89\xd8\x83\xe0\x0f",  # mov eax, ebx; and eax, 15
            b"\xe8\x19\x00\x00\x00\x83\xc1\x04",  # call length; add ecx, 4
            b"\x89\xf0\x89\xfe\x29\xd6",  # mov eax, esi; mov esi, edi; sub esi, edx
            b"\xf3\xa4\x89\xc6\x5a\xeb\xcd",  # rep movsb; mov esi, eax; pop edx; jmp next
            b"\x89\xd6\xb8" + struct.pack("<I", start),  # done: mov esi, edx; mov eax, start
            b"\xff\xe0",  # jmp eax
            b"\x89\xc1\x3c\x0f\x75\x09",  # length: mov ecx, eax; cmp al, 15; jne ready
            b"\x31\xc0\xac\x01\xc1",  # more: xor eax, eax; lodsb; add ecx, eax
            b"\x3c\xff\x74\xf7\xc3",  # cmp al, 255; je more; ready: ret
        )
    ).ljust(_UNPACKER_SIZE, b"\0")
