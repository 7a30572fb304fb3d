"""The decompressor is taken out of a kernel: what is left, and where it is to lie."""

import lzma
import struct

import pytest

from corral.node.images.demo import kernel, lz4
from corral.node.images.demo.errors import DemoError

START = 0x1000000
LZ4_MAGIC = b"\x02\x21\x4c\x18"
BASE = 0xFFFFFFFF80000000


def elf(start=START, *, kind=b"\x01"):
    """Two segments with a gap between them, the second with zeros after it."""
    header = bytearray(52)
    header[:5] = b"\x7fELF" + kind
    struct.pack_into("<I", header, 28, 52)
    struct.pack_into("<H", header, 44, 2)
    table = struct.pack("<8I", 1, 0x100, 0, start, 4, 4, 0, 0)
    table += struct.pack("<8I", 1, 0x104, 0, start + 8, 4, 0x2000, 0, 0)
    return (bytes(header) + table).ljust(0x100, b"\0") + b"codedata"


SECTIONS = {
    ".BTF": (0x100, 0x10F80),
    ".BTF_ids": (0x11080, 0x20),
    ".return_sites": (0x12000, 8),
    ".data": (0x14000, 0x1000),
    ".orc_unwind_ip": (0x20010, 0x20),
    ".orc_unwind": (0x20030, 0x12FE0),
    ".init.scratch": (0x40000, 0x1000),
}


def seen(offset):
    return struct.pack("<I", BASE + START + offset & 0xFFFFFFFF)


# What the kernel's own instructions say of its sections, and a jump where it returns.
RETURNS = b"\x48\xc7\xc6" + seen(0x12008) + b"\x48\xc7\xc7" + seen(0x12000)
FREED = b"\x48\xc7\xc6" + seen(0x12FFF) + b"\x48\xc7\xc2" + seen(0x14000)
KEPT = b"\x48\x8d\x84\x11" + seen(0x12000), b"\x48\x8d\x84\x0e" + seen(0x12000)
INSTRUCTIONS = {
    0x12000: struct.pack("<ii", 0x100, 0x200),
    0x12100: b"\xe9thnk",
    0x12204: b"\xe9thnk",
    0x12300: RETURNS,
    0x12400: FREED,
    0x12500: KEPT[0],
    0x12600: KEPT[1],
}


def wide_elf(sections=None, instructions=INSTRUCTIONS):
    """One segment of 0x35000 bytes 0xEE, and what lies where in it."""
    sections = SECTIONS if sections is None else sections
    content = bytearray(b"\xee" * 0x35000)
    for at, code in instructions.items():
        content[at : at + len(code)] = code
    text, rows = b"\0", []
    for name, (at, size) in sections.items():
        rows.append((len(text), 1, 2, BASE + START + at, 0, size, 0, 0, 1, 0))
        text += name.encode() + b"\0"
    text_at = 0x1000 + len(content)
    rows.append((0, 3, 0, 0, text_at, len(text), 0, 0, 1, 0))
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    struct.pack_into("<QQ", header, 32, 64, text_at + len(text))
    struct.pack_into("<HHHHH", header, 54, 56, 1, 64, len(rows), len(rows) - 1)
    segment = struct.pack("<II6Q", 1, 7, 0x1000, BASE + START, START, 0x35000, 0x39000, 0x1000)
    table = b"".join(struct.pack("<II4QIIQQ", *row) for row in rows)
    return (bytes(header) + segment).ljust(0x1000, b"\0") + content + text + table


def image(payload):
    setup = bytearray(512 * 2)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    stored = payload + struct.pack("<I", 1)
    struct.pack_into("<II", setup, 0x248, 16, len(stored))
    return bytes(setup) + bytes(16) + stored


def test_a_32_bit_kernel_is_packed_behind_its_decompressor():
    found = kernel.unpack(image(lzma.compress(elf())))
    assert len(found.setup) == 1024
    (part,) = found.parts
    assert struct.unpack_from("<I", found.setup, 0x214) == (part.address,) == (0x100000,)
    source, target, end = struct.unpack_from("<IxIxI", part.content, 9)
    assert target == START
    assert end == part.address + len(part.content)
    packed = part.content[source - part.address :]
    unpacked = lz4.unpack(LZ4_MAGIC + struct.pack("<I", len(packed)) + packed)
    assert unpacked == b"code" + bytes(4) + b"data"
    assert found.end == START + 8 + 0x2000


def placed(found):
    """What a boot loader makes of memory that holds 0xAA."""
    memory = bytearray(b"\xaa" * 0x40000)
    for part in found.parts:
        if part.address >= START:
            at = part.address - START
            memory[at : at + len(part.content)] = part.content
    return memory


def test_the_initramfs_replaces_the_unwind_tables_of_a_64_bit_kernel():
    found = kernel.unpack(image(lzma.compress(wide_elf())), b"initramfs")
    memory = placed(found)
    # Whole pages of the unwinder's tables, which the kernel gets as its initramfs.
    assert struct.unpack_from("<II", found.setup, 0x218) == (START + 0x21000, 0x12000)
    assert memory[0x21000 : 0x21000 + 9] == b"initramfs"
    assert not any(memory[0x21009:0x33000])
    # What nobody reads is not even cleared, as far as it is whole pages.
    assert set(memory[0x1000:0x11000]) == {0xAA}
    assert set(memory[:0x100]) == set(memory[0x33000:0x35000]) == {0xEE}
    assert not any(b"\xee" * 0x10000 in part.content for part in found.parts)
    assert found.end == START + 0x40000


def test_a_64_bit_kernel_returns_at_once_and_gives_its_types_back():
    memory = placed(kernel.unpack(image(lzma.compress(wide_elf()))))
    assert memory[0x12100:0x12105] == memory[0x12204:0x12209] == b"\xc3\xcc\xcc\xcc\xcc"
    assert memory[0x12300:].startswith(RETURNS.replace(seen(0x12008), seen(0x12000)))
    # From the first whole page of its types to the data.
    assert memory[0x12400:].startswith(FREED.replace(seen(0x12FFF), seen(0x1FFF)))
    assert memory[0x12500:].startswith(KEPT[0].replace(seen(0x12000), seen(0x1000)))
    assert memory[0x12600:].startswith(KEPT[1].replace(seen(0x12000), seen(0x1000)))


@pytest.mark.parametrize(
    ("place", "code", "untouched"),
    [
        (0x12204, b"\xe8thnk", (0x12100, 0x12204, 0x12300)),  # a call is no return
        (0x12300, b"\x90", (0x12100, 0x12204)),
        (0x12400, b"\x90", (0x12500, 0x12600)),
        (0x12600, b"\x90", (0x12400, 0x12500)),
    ],
)
def test_a_64_bit_kernel_that_is_otherwise_keeps_doing_these_by_itself(place, code, untouched):
    instructions = INSTRUCTIONS | {place: code}
    memory = placed(kernel.unpack(image(lzma.compress(wide_elf(instructions=instructions)))))
    for at in untouched:
        assert memory[at:].startswith(instructions[at])


def test_a_64_bit_kernel_is_entered_with_the_first_gib_mapped_to_itself():
    found = kernel.unpack(image(lzma.compress(wide_elf())))
    assert struct.unpack_from("<I", found.setup, 0x214) == (found.parts[0].address,) == (0x100000,)
    tables = found.parts[0].content[0x1000:]
    assert struct.unpack_from("<Q", tables) == (0x102003,)
    assert struct.unpack_from("<Q", tables, 0x1000) == (0x103003,)
    pages = struct.unpack_from("<512Q", tables, 0x2000)
    assert [page & ~0xFFF for page in pages] == [number * 2**21 for number in range(512)]


@pytest.mark.parametrize(
    ("damaged", "initramfs", "reason"),
    [
        (b"MZ".ljust(1024, b"\0"), b"", "no bzImage"),
        (image(b"no xz"), b"", "cannot be unpacked"),
        (image(lzma.compress(b"no elf")), b"", "no ELF"),
        (image(lzma.compress(elf(kind=b"\x02"))), b"", "cannot be unpacked"),
        (image(lzma.compress(elf(start=0x100000))), b"", "overlaps its boot loader"),
        (image(lzma.compress(wide_elf({}))), b"", "lacks sections"),
        (image(lzma.compress(wide_elf())), bytes(0x13000), "too large"),
        (image(b"\x02\x21\x4c\x18\x01\x02\x03\x04damaged"), b"", "damaged LZ4 data"),
    ],
)
def test_another_kernel_is_refused_with_the_reason(damaged, initramfs, reason):
    with pytest.raises(DemoError, match=reason):
        kernel.unpack(damaged, initramfs)
