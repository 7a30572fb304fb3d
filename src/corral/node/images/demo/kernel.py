"""Takes the decompressor out of a Linux kernel for the PC: it then boots at once.

Unpacking a kernel in the guest takes over a second where the processor is emulated; read from the
host's page cache, the unpacked kernel costs a few milliseconds. The result is still a `bzImage`
(kernel: Documentation/arch/x86/boot.rst), with the real-mode part that Debian built, and a few
instructions in place of the decompressor, which move the kernel to its place.
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

_LOADED_AT = 0x100000  # where every boot loader puts the protected-mode part
_STUB_SIZE = 0x4000
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
class _Segment:
    offset: int
    address: int
    file_size: int
    memory_size: int


def unpack(image: bytes, initramfs: bytes = b"") -> bytes:
    """The bzImage `image` with its kernel unpacked. Raises DemoError if it is none that we know.

    A 64-bit kernel takes `initramfs` with it, in the room of tables that nobody needs here: the
    kernel gives that memory back once it has read the files.
    """
    if image[0x202:0x206] != b"HdrS":
        raise DemoError("the kernel package holds no bzImage", _HINT)
    setup = bytearray(image[: (image[0x1F1] + 1) * 512])
    elf = _unpacked(_payload(image, len(setup)))
    try:
        body, end = (_wide if elf[4] == _WIDE else _narrow)(elf, initramfs)
    except struct.error as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error
    _describe(setup, len(body), end)
    return bytes(setup) + body


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


def _describe(setup: bytearray, size: int, end: int) -> None:
    """Tells the boot loader of a kernel that is not to be moved and needs memory up to `end`."""
    struct.pack_into("<I", setup, 0x1F4, size // 16)  # syssize
    struct.pack_into("<I", setup, 0x214, _LOADED_AT)  # code32_start
    struct.pack_into("<B", setup, 0x234, 0)  # relocatable_kernel: no
    struct.pack_into("<II", setup, 0x248, 0, 0)  # payload: none
    struct.pack_into("<Q", setup, 0x258, _LOADED_AT)  # pref_address
    struct.pack_into("<I", setup, 0x260, end - _LOADED_AT)  # init_size


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
    if not segments or segments[0].address < _LOADED_AT + _STUB_SIZE:
        raise DemoError("the kernel's place is where the boot loader puts it", _HINT)
    start, memory = segments[0].address, bytearray()
    for part in segments:
        memory += bytes(part.address - start - len(memory))
        memory += elf[part.offset : part.offset + part.file_size]
    return start, memory


# ------------------------------------------------------------------ of the 64-bit kernel


def _wide(elf: bytes, initramfs: bytes) -> tuple[bytes, int]:
    """The protected-mode part, and up to where the kernel needs memory before it looks for more."""
    start, memory = _loaded(elf, _segments(elf, is_wide=True))
    sections = _sections(elf)
    if not {*_UNWINDER, _TYPES, _TYPES_LAST, _SCRATCH, _RETURNS, _DATA} <= sections.keys():
        raise DemoError("the kernel lacks sections that were expected", _HINT)
    _return_at_once(memory, start, sections[_RETURNS])
    types = sections[_TYPES]
    _free_types(memory, sections)
    _clear(memory, range(types.start - start, types.stop - start))
    room = _give_room(memory, start, range(*_pages(sections, _UNWINDER)), initramfs)
    parts = _parts(memory)
    # The kernel overlaps its place: it is moved from its end on, and what is empty is cleared.
    moves, source, below = [], _LOADED_AT + _STUB_SIZE, 0
    for part in parts:
        hole = range(start + below, start + part.start)
        is_needed = hole.start < types.start or hole.stop > types.stop
        source += len(part)
        moves.append((len(part), source, start + part.stop, len(hole) if is_needed else 0))
        below = part.stop
    kernel = b"".join(memory[part.start : part.stop] for part in parts)
    return _wide_stub(start, moves[::-1], room) + kernel, sections[_SCRATCH].start


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


def _parts(memory: bytearray) -> list[range]:
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


def _wide_stub(start: int, moves: list[tuple[int, int, int, int]], room: range) -> bytes:
    """Instructions that enter 64-bit mode, move the kernel's parts and jump to `start`.

    As boot.rst asks of a boot loader: all memory that is looked at is mapped to itself, and rsi
    holds boot_params, into which they write where the initramfs is. A move is a part's size, the
    ends of where it is and of where it is to be, and how many bytes below that are to be cleared.
    """
    tables = _LOADED_AT + _PAGE
    segments, wide_code, table = (_LOADED_AT + at for at in (0x800, 0x100, 0x900))
    enter = b"".join(
        (
            b"\xc7\x86" + struct.pack("<II", 0x218, room.start),  # mov [esi + ramdisk_image], …
            b"\xc7\x86" + struct.pack("<II", 0x21C, len(room)),  # mov [esi + ramdisk_size], …
            b"\x0f\x01\x15" + struct.pack("<I", segments + 32),  # lgdt
            b"\x0f\x20\xe0\x83\xc8\x20\x0f\x22\xe0",  # cr4 |= PAE
            b"\xb8" + struct.pack("<I", tables) + b"\x0f\x22\xd8",  # cr3 = tables
            b"\xb9" + struct.pack("<I", 0xC0000080) + b"\x0f\x32",  # rdmsr EFER
            b"\x0d" + struct.pack("<I", 0x100) + b"\x0f\x30",  # EFER |= LME
            b"\x0f\x20\xc0\x0d" + struct.pack("<I", 0x80000001) + b"\x0f\x22\xc0",  # cr0 |= PG, PE
            b"\xea" + struct.pack("<IH", wide_code, 0x10),  # jmp 0x10:wide_code
        )
    )
    move = b"".join(
        (
            b"\x89\xf3\xfd",  # mov ebx, esi; std
            b"\xbd" + struct.pack("<I", table),  # mov ebp, table
            b"\x8b\x4d\x00\xe3\x16",  # next: mov ecx, [rbp]; jrcxz done
            b"\x8b\x75\x04\x8b\x7d\x08\xf3\x48\xa5",  # esi, edi = [rbp + 4], [rbp + 8]; rep movsq
            b"\x8b\x4d\x0c\x31\xc0\xf3\x48\xab",  # ecx, eax = [rbp + 12], 0; rep stosq
            b"\x83\xc5\x10\xeb\xe5",  # add ebp, 16; jmp next
            b"\xfc\x89\xde",  # done: cld; mov esi, ebx
            b"\xb8" + struct.pack("<I", start) + b"\xff\xe0",  # mov eax, start; jmp rax
        )
    )
    rows = b"".join(
        struct.pack("<4I", size // 8, source - 8, target - 8, cleared // 8)
        for size, source, target, cleared in moves
    )
    code = enter.ljust(0x100, b"\0") + move
    # No segment, none, 64-bit code, data; then the table's own size and address.
    descriptors = struct.pack("<4Q", 0, 0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF)
    page = code.ljust(0x800, b"\0") + descriptors + struct.pack("<HI", 31, segments)
    page = page.ljust(0x900, b"\0") + rows
    if len(page) > _PAGE - 16:
        raise DemoError("the kernel is in too many parts", _HINT)
    return page.ljust(_PAGE, b"\0") + _identity_map(tables)


def _identity_map(tables: int) -> bytes:
    """Page tables that map the first GiB to itself, in pages of 2 MiB."""
    present, large = 0x3, 0x83
    levels = [struct.pack("<Q", tables + depth * _PAGE | present) for depth in (1, 2)]
    leaves = b"".join(struct.pack("<Q", number << 21 | large) for number in range(512))
    return b"".join(level.ljust(_PAGE, b"\0") for level in levels) + leaves


# ------------------------------------------------------------------ of the 32-bit kernel


def _narrow(elf: bytes, _: bytes) -> tuple[bytes, int]:
    segments = _segments(elf, is_wide=False)
    start, memory = _loaded(elf, segments)
    memory += bytes(-len(memory) % 16)
    stub = _stub(start, len(memory)).ljust(_STUB_SIZE, b"\0")
    return stub + memory, max(part.address + part.memory_size for part in segments)


def _stub(start: int, size: int) -> bytes:
    """Instructions that move the kernel to `start` and jump there; esi (boot_params) is kept."""
    if _LOADED_AT + _STUB_SIZE + size > start:
        raise DemoError("the kernel is too large to be moved to its place", _HINT)
    return b"".join(
        (
            b"\x89\xf3",  # mov ebx, esi
            b"\xfc",  # cld
            b"\xbe" + struct.pack("<I", _LOADED_AT + _STUB_SIZE),  # mov esi, source
            b"\xbf" + struct.pack("<I", start),  # mov edi, start
            b"\xb9" + struct.pack("<I", size // 4),  # mov ecx, size / 4
            b"\xf3\xa5",  # rep movsd
            b"\x89\xde",  # mov esi, ebx
            b"\xb8" + struct.pack("<I", start),  # mov eax, start
            b"\xff\xe0",  # jmp eax
        )
    )
