"""The decompressor is taken out of a kernel: what is left lies where the boot loader is told."""

import lzma
import struct

import pytest

from corral.node.images.demo import kernel
from corral.node.images.demo.errors import DemoError

START = 0x1000000


def elf(start=START, *, kind=b"\x01"):
    """Two segments with a gap between them, the second with zeros after it."""
    header = bytearray(52)
    header[:5] = b"\x7fELF" + kind
    struct.pack_into("<I", header, 28, 52)
    struct.pack_into("<H", header, 44, 2)
    table = struct.pack("<8I", 1, 0x100, 0, start, 4, 4, 0, 0)
    table += struct.pack("<8I", 1, 0x104, 0, start + 8, 4, 0x2000, 0, 0)
    return (bytes(header) + table).ljust(0x100, b"\0") + b"codedata"


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
    assert body[0x1000:] == b"code" + bytes(4) + b"data" + bytes(4)
    assert struct.pack("<I", START) in body[:0x40]
    assert struct.unpack_from("<I", whole, 0x1F4) == (len(body) // 16,)
    (init_size,) = struct.unpack_from("<I", whole, 0x260)
    assert 0x100000 + init_size == START + 8 + 0x2000


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"MZ".ljust(1024, b"\0"), "no bzImage"),
        (image(b"no xz"), "cannot be unpacked"),
        (image(lzma.compress(b"no elf")), "not a 32-bit"),
        (image(lzma.compress(elf(kind=b"\x02"))), "not a 32-bit"),
        (image(lzma.compress(elf(start=0x100000))), "too large"),
    ],
)
def test_another_kernel_is_refused_with_the_reason(damaged, reason):
    with pytest.raises(DemoError, match=reason):
        kernel.unpack(damaged)
