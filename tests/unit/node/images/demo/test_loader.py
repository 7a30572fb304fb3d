"""The boot loader's tables: the places of a kernel's parts, and the kernel of each machine."""

import struct

import pytest

from corral.node.images.demo import loader
from corral.node.images.demo.errors import DemoError
from corral.node.images.demo.kernel import Kernel, Part

SETUP = bytearray(b"\x11" * 1024)
KERNEL = Kernel(
    bytes(SETUP),
    (Part(0x100000, b"a" * 3000), Part(0x200000, bytes(5000)), Part(0x300000, b"b")),
    0,
)


def rows(program, at):
    found = []
    for row in struct.iter_unpack("<III", program[at : at + 0x2B8 // 12 * 12]):
        if not row[1]:
            return found
        found.append(row)
    pytest.fail("the table has no end")


def test_a_kernel_is_one_file_of_blocks_and_zeros_take_no_room():
    image = loader.image(KERNEL, ["console=ttyS0", "panic=5"])
    assert [(row.first, row.blocks, row.address) for row in image.rows] == [
        (0, 1, 0x40000), (1, 1, 0x4E000), (2, 2, 0x100000), (None, 3, 0x200000), (4, 1, 0x300000),
    ]  # fmt: skip
    assert len(image.content) == 5 * loader.BLOCK
    assert image.content[loader.BLOCK :].startswith(b"console=ttyS0 panic=5\0")
    assert image.content[2 * loader.BLOCK :].startswith(b"a" * 3000 + bytes(1096) + b"b" + bytes(9))


def test_the_setup_header_has_the_command_line_heap_and_initramfs():
    image = loader.image(KERNEL, ["panic=5"], Part(0x2000000, b"initramfs"))
    assert image.content[0x210:0x212] == b"\xff\x91"
    assert struct.unpack_from("<II", image.content, 0x218) == (0x2000000, 9)
    assert struct.unpack_from("<H", image.content, 0x224) == (0xDE00,)
    assert struct.unpack_from("<I", image.content, 0x228) == (0x4E000,)
    assert image.rows[-1] == loader.Row(5, 1, 0x2000000)


def test_the_loader_has_tables_of_both_kernels_and_of_their_devices():
    wide, other = loader.image(KERNEL, ["wide"]), loader.image(KERNEL, ["other"])
    program = loader.program((wide, 100), (other, 200))
    assert len(program) == loader.SIZE
    assert rows(program, 0x280)[0] == (100, 1, 0x40000)
    assert rows(program, 0x280)[3] == (0, 3, 0x200000)  # block 0 is no kernel's: zeros
    assert rows(program, 0x540)[-1] == (204, 1, 0x300000)
    devices = list(struct.iter_unpack("<HH", program[0x200:0x218]))
    assert devices[0] == (0x2922, 0x8086)  # SATA
    assert devices[-1] == (0, 0)


def test_long_command_lines_and_many_parts_are_refused():
    with pytest.raises(DemoError, match="command line is too long"):
        loader.image(KERNEL, ["x" * loader.BLOCK])
    parts = tuple(Part(0x100000 * number, b"a") for number in range(1, 60))
    many = loader.image(Kernel(bytes(SETUP), parts, 0), [])
    few = loader.image(KERNEL, [])
    for pair in ((many, few), (few, many)):
        with pytest.raises(DemoError, match="too many parts"):
            loader.program((pair[0], 1), (pair[1], 1))
