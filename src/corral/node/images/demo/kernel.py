"""Removes the decompressor from an x86 Linux kernel, so that it boots at once.

Decompressing a kernel in the guest takes over a second on an emulated CPU. The result is Debian's
real-mode setup code (kernel: Documentation/arch/x86/boot.rst) and the kernel's segments, which the
boot loader copies to their addresses.
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

_ENTRY = 0x100000  # address of our entry code, with page tables for the 64-bit kernel
_ENTRY_SIZE = 0x4000
_UNPACKER_SIZE = 0x80
_ELF_LOAD = 1
_PAGE = 0x1000
_MIN_HOLE = 0x10000
_WIDE = 2
_HINT = "another version of the kernel package may be needed: please report it"

# Sections of the 64-bit kernel: the unwinder's tables are for backtraces only, the types for BPF.
_UNWINDER = (".orc_unwind_ip", ".orc_unwind")
_TYPES = ".BTF"
_TYPES_LAST = ".BTF_ids"  # the last section of the read-only data
_SCRATCH = ".init.scratch"  # for memory encryption, unused here; the last section
_RETURNS = ".return_sites"
_DATA = ".data"

_VIRTUAL = 0xFFFFFFFF80000000  # __START_KERNEL_map
_JUMP, _RETURN = 0xE9, b"\xc3\xcc\xcc\xcc\xcc"
_LOAD_ADDRESS, _END_REFERENCES = rb"\x48\x8d\x84.", 2  # lea rax, [… + …]
_MOVE_RDX, _MOVE_RSI, _MOVE_RDI = b"\x48\xc7\xc2", b"\x48\xc7\xc6", b"\x48\xc7\xc7"


@dataclass(frozen=True, slots=True)
class Part:
    """Memory content from `address` on."""

    address: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel ready to start: its real-mode setup, its parts, and the end of the memory it needs.

    The kernel uses memory up to `end` before it reads the memory map.
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
    """Unpack a bzImage. Raises DemoError for an unsupported one.

    For a 64-bit kernel, `initramfs` replaces unneeded tables in its image: the kernel frees that
    memory after it has unpacked the files.
    """
    if image[0x202:0x206] != b"HdrS":
        raise DemoError("the kernel package holds no bzImage", _HINT)
    setup = bytearray(image[: (image[0x1F1] + 1) * 512])
    elf = _decompress(_payload(image, len(setup)))
    try:
        return _wide(setup, elf, initramfs) if elf[4] == _WIDE else _narrow(setup, elf)
    except struct.error as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error


def _payload(image: bytes, setup_size: int) -> bytes:
    offset, length = struct.unpack_from("<II", image, 0x248)
    return image[setup_size + offset :][: length - 4]  # the unpacked size follows


def _decompress(payload: bytes) -> bytes:
    try:
        elf = lz4.unpack(payload) if lz4.is_legacy(payload) else lzma.decompress(payload)
    except (lzma.LZMAError, ValueError) as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error
    if elf[:5] not in {b"\x7fELF\x01", b"\x7fELF\x02"}:
        raise DemoError("the kernel is no ELF file", _HINT)
    return elf


def _segments(elf: bytes, *, is_wide: bool) -> list[_Segment]:
    """Return the loaded segments of an ELF file, sorted by address."""
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
    """Return the first address and the memory image of an ELF file."""
    if not segments or segments[0].address < _ENTRY + _ENTRY_SIZE:
        raise DemoError("the kernel overlaps its boot loader", _HINT)
    start, memory = segments[0].address, bytearray()
    for part in segments:
        memory += bytes(part.address - start - len(memory))
        memory += elf[part.offset : part.offset + part.file_size]
    return start, memory


# ---------------------------------------------------------------------- 64-bit kernel


def _wide(setup: bytearray, elf: bytes, initramfs: bytes) -> Kernel:
    start, memory = _loaded(elf, _segments(elf, is_wide=True))
    sections = _sections(elf)
    if not {*_UNWINDER, _TYPES, _TYPES_LAST, _SCRATCH, _RETURNS, _DATA} <= sections.keys():
        raise DemoError("the kernel lacks sections that were expected", _HINT)
    _patch_returns(memory, start, sections[_RETURNS])
    types = sections[_TYPES]
    _free_types(memory, sections)
    _clear(memory, range(types.start - start, types.stop - start))
    ramdisk = _insert(memory, start, range(*_pages(sections, _UNWINDER)), initramfs)
    # code32_start, ramdisk_image, ramdisk_size
    struct.pack_into("<III", setup, 0x214, _ENTRY, ramdisk.start, len(ramdisk))
    parts = (Part(_ENTRY, _entry(start)), *_parts(start, memory, types))
    return Kernel(bytes(setup), parts, sections[_SCRATCH].start)


def _patch_returns(memory: bytearray, start: int, sites: range) -> None:
    """Replace the jumps to the return thunk by `ret`, and empty the kernel's list of these sites.

    Without mitigations the kernel does this itself at boot, which takes an emulated CPU a quarter
    of a second for 48 000 sites.
    """
    places = [
        at + struct.unpack_from("<i", memory, at)[0]
        for at in range(sites.start - start, sites.stop - start, 4)
    ]
    loop = _MOVE_RSI + _virtual(sites.stop) + _MOVE_RDI + _virtual(sites.start)
    if memory.count(loop) != 1 or any(memory[place] != _JUMP for place in places):
        return  # other code than expected: leave it to the kernel
    for place in places:
        memory[place : place + len(_RETURN)] = _RETURN
    _replace(memory, loop, _MOVE_RSI + _virtual(sites.start) + _MOVE_RDI + _virtual(sites.start))


def _free_types(memory: bytearray, sections: Mapping[str, range]) -> None:
    """Let the kernel free the memory of its types, 4 MB, with the gap behind the read-only data.

    The types are the last read-only sections. This patches the instructions that load the end of
    these: in `mark_rodata_ro`, rounded up to a page, and where the write protection is set.
    """
    end = -(-sections[_TYPES_LAST].stop // _PAGE) * _PAGE
    new_end = -(-sections[_TYPES].start // _PAGE) * _PAGE
    gap = _MOVE_RDX + _virtual(sections[_DATA].start)
    freed = _MOVE_RSI + _virtual(end + _PAGE - 1) + gap
    loads = set(re.findall(_LOAD_ADDRESS + re.escape(_virtual(end)), memory, re.DOTALL))
    if memory.count(freed) != 1 or sum(map(memory.count, loads)) != _END_REFERENCES:
        return  # other code than expected: keep the types
    _replace(memory, freed, _MOVE_RSI + _virtual(new_end + _PAGE - 1) + gap)
    for instruction in loads:
        _replace(memory, instruction, instruction[:-4] + _virtual(new_end))


def _virtual(address: int) -> bytes:
    """Return a physical address as a 32-bit virtual one, as in the kernel's instructions."""
    return struct.pack("<I", address + _VIRTUAL & 0xFFFFFFFF)


def _replace(memory: bytearray, old: bytes, new: bytes) -> None:
    """Replace all occurrences in place; both have the same length."""
    at = memory.find(old)
    while at >= 0:
        memory[at : at + len(old)] = new
        at = memory.find(old, at + len(old))


def _clear(memory: bytearray, place: range) -> None:
    memory[place.start : place.stop] = bytes(len(place))


def _pages(sections: Mapping[str, range], names: tuple[str, ...]) -> tuple[int, int]:
    """Return the range of whole pages of adjacent sections."""
    first, last = sections[names[0]], sections[names[-1]]
    return -(-first.start // _PAGE) * _PAGE, last.stop // _PAGE * _PAGE


def _insert(memory: bytearray, start: int, target: range, initramfs: bytes) -> range:
    """Write `initramfs` to `memory` at a range of addresses, and return that range.

    The whole range is declared as the initramfs, so that the kernel frees all of it.
    """
    if len(initramfs) > len(target):
        raise DemoError(f"the initramfs of {len(initramfs)} bytes is too large", _HINT)
    _clear(memory, range(target.start - start, target.stop - start))
    memory[target.start - start : target.start - start + len(initramfs)] = initramfs
    return target


def _parts(start: int, memory: bytearray, unused: range) -> tuple[Part, ...]:
    """Split `memory` into parts: data, and large holes as zeros; omits holes in `unused`."""
    parts: list[Part] = []
    below = 0
    for place in _data_ranges(memory):
        hole = range(start + below, start + place.start)
        if hole and not (unused.start <= hole.start and hole.stop <= unused.stop):
            parts.append(Part(hole.start, bytes(len(hole))))
        parts.append(Part(start + place.start, bytes(memory[place.start : place.stop])))
        below = place.stop
    return tuple(parts)


def _data_ranges(memory: bytearray) -> list[range]:
    """Return the non-empty ranges of `memory`, merged across small holes."""
    empty = bytes(_PAGE)
    found: list[range] = []
    for at in range(0, len(memory), _PAGE):
        if memory[at : at + _PAGE] == empty[: len(memory) - at]:
            continue
        if found and at - found[-1].stop < _MIN_HOLE:
            found[-1] = range(found[-1].start, at + _PAGE)
        else:
            found.append(range(at, at + _PAGE))
    memory += bytes(-len(memory) % _PAGE)
    return found


def _sections(elf: bytes) -> dict[str, range]:
    """Return the physical address range of each section."""
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
    """Return code that enters 64-bit mode and jumps to `start`.

    As boot.rst requires of a boot loader: the memory is identity-mapped, and rsi has boot_params.
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
    """Return page tables that identity-map the first GiB, in pages of 2 MiB."""
    present, large = 0x3, 0x83
    levels = [struct.pack("<Q", tables + depth * _PAGE | present) for depth in (1, 2)]
    leaves = b"".join(struct.pack("<Q", number << 21 | large) for number in range(512))
    return b"".join(level.ljust(_PAGE, b"\0") for level in levels) + leaves


# ---------------------------------------------------------------------- 32-bit kernel


def _narrow(setup: bytearray, elf: bytes) -> Kernel:
    """Compress the 32-bit kernel again, for a small disk: few machines boot it."""
    segments = _segments(elf, is_wide=False)
    start, memory = _loaded(elf, segments)
    packed = lz4.pack_block(bytes(memory))
    if _ENTRY + _UNPACKER_SIZE + len(packed) > start:
        raise DemoError("the kernel is too large to be unpacked to its place", _HINT)
    struct.pack_into("<I", setup, 0x214, _ENTRY)
    part = Part(_ENTRY, _unpacker(start, len(packed)) + packed)
    return Kernel(bytes(setup), (part,), max(each.address + each.memory_size for each in segments))


def _unpacker(start: int, size: int) -> bytes:
    """Return code that decompresses the LZ4 block behind it to `start` and jumps there; keeps esi.

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
