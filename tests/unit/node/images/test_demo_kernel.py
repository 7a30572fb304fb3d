"""The decompressor is taken out of a kernel: what is left lies where the boot loader is told."""

import lzma
import struct

import pytest

from corral.node.images.demo import kernel
from corral.node.images.demo.errors import DemoError

START = 0x1000000
BASE = 0xFFFFFFFF80000000
STUB = 0x4000


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


def test_the_kernel_follows_a_stub_that_moves_it_to_its_place():
    whole = kernel.unpack(image(lzma.compress(elf())))
    body = whole[1024:]
    assert body[STUB:] == b"code" + bytes(4) + b"data" + bytes(4)
    assert struct.pack("<I", START) in body[:0x40]
    assert struct.unpack_from("<I", whole, 0x1F4) == (len(body) // 16,)
    (init_size,) = struct.unpack_from("<I", whole, 0x260)
    assert 0x100000 + init_size == START + 8 + 0x2000


def placed(body):
    """What the stub makes of memory that holds 0xAA, by the table in it."""
    memory = bytearray(b"\xaa" * 0x40000)
    for words, source, target, cleared in struct.iter_unpack("<4I", body[0x900 : 0x900 + 0xF0]):
        size, at = words * 8, target + 8 - words * 8 - START
        memory[at : at + size] = body[source + 8 - size - 0x100000 :][:size]
        memory[at - cleared * 8 : at] = bytes(cleared * 8)
    return memory


def test_a_64_bit_kernel_has_its_initramfs_in_the_place_of_the_tables_that_nobody_needs():
    whole = kernel.unpack(image(lzma.compress(wide_elf())), b"initramfs")
    memory = placed(whole[1024:])
    # Whole pages of the unwinder's tables, of which the kernel is told as its initramfs.
    assert struct.pack("<II", 0x218, START + 0x21000) in whole[1024:]
    assert struct.pack("<II", 0x21C, 0x12000) in whole[1024:]
    assert memory[0x21000 : 0x21000 + 9] == b"initramfs"
    assert not any(memory[0x21009:0x33000])
    # What nobody reads is not even cleared, as far as it is whole pages.
    assert set(memory[0x1000:0x11000]) == {0xAA}
    assert set(memory[:0x100]) == set(memory[0x33000:0x35000]) == {0xEE}
    assert b"\xee" * 0x10000 not in whole
    (init_size,) = struct.unpack_from("<I", whole, 0x260)
    assert 0x100000 + init_size == START + 0x40000


def test_a_64_bit_kernel_returns_at_once_and_gives_its_types_back():
    memory = placed(kernel.unpack(image(lzma.compress(wide_elf())))[1024:])
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
    memory = placed(kernel.unpack(image(lzma.compress(wide_elf(instructions=instructions))))[1024:])
    for at in untouched:
        assert memory[at:].startswith(instructions[at])


def test_a_64_bit_kernel_is_entered_with_the_first_gib_mapped_to_itself():
    tables = kernel.unpack(image(lzma.compress(wide_elf())))[1024 + 0x1000 :]
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
        (image(lzma.compress(elf(start=0x100000))), b"", "where the boot loader puts it"),
        (image(lzma.compress(elf(start=0x104000))), b"", "too large"),
        (image(lzma.compress(wide_elf({}))), b"", "lacks sections"),
        (image(lzma.compress(wide_elf())), bytes(0x13000), "too large"),
        (image(b"\x02\x21\x4c\x18\x01\x02\x03\x04damaged"), b"", "damaged LZ4 data"),
    ],
)
def test_another_kernel_is_refused_with_the_reason(damaged, initramfs, reason):
    with pytest.raises(DemoError, match=reason):
        kernel.unpack(damaged, initramfs)
