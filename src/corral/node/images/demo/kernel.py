"""Takes the decompressor out of a Linux kernel for the PC: it then boots at once.

Debian's i386 kernel is compressed by xz. Unpacking it in the guest takes over a second where the
processor is emulated; read from the host's page cache, the unpacked kernel costs a few
milliseconds. The result is still a `bzImage` (kernel: Documentation/arch/x86/boot.rst), with the
real-mode part that Debian built, and a few instructions in place of the decompressor.
"""

from __future__ import annotations

import lzma
import struct

from corral.node.images.demo.errors import DemoError

_LOADED_AT = 0x100000  # where every boot loader puts the protected-mode part
_STUB_SIZE = 0x1000
_ELF32_LOAD = 1
_HINT = "another version of the kernel package may be needed: please report it"


def unpack(image: bytes) -> bytes:
    """The bzImage `image` with its kernel unpacked. Raises DemoError if it is not an xz one."""
    if image[0x202:0x206] != b"HdrS":
        raise DemoError("the kernel package holds no bzImage", _HINT)
    setup = bytearray(image[: (image[0x1F1] + 1) * 512])
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[len(setup) + offset :][: length - 4]  # the size of what it holds follows it
    try:
        start, kernel, end = _loaded(lzma.decompress(payload))
    except (lzma.LZMAError, struct.error) as error:
        raise DemoError(f"the kernel cannot be unpacked: {error}", _HINT) from error
    body = _stub(start, len(kernel)).ljust(_STUB_SIZE, b"\0") + kernel
    if _LOADED_AT + len(body) > start:
        raise DemoError("the kernel is too large to be moved to its place", _HINT)
    struct.pack_into("<I", setup, 0x1F4, len(body) // 16)  # syssize
    struct.pack_into("<I", setup, 0x214, _LOADED_AT)  # code32_start
    struct.pack_into("<B", setup, 0x234, 0)  # relocatable_kernel: no
    struct.pack_into("<II", setup, 0x248, 0, 0)  # payload: none
    struct.pack_into("<Q", setup, 0x258, _LOADED_AT)  # pref_address
    struct.pack_into("<I", setup, 0x260, end - _LOADED_AT)  # init_size
    return bytes(setup) + body


def _loaded(elf: bytes) -> tuple[int, bytes, int]:
    """The ELF file as it lies in memory: its first address, its bytes, the end of its zeros."""
    if elf[:5] != b"\x7fELF\x01":
        raise DemoError("the kernel is not a 32-bit one", _HINT)
    table, count = struct.unpack_from("<I", elf, 28)[0], struct.unpack_from("<H", elf, 44)[0]
    headers = [struct.unpack_from("<8I", elf, table + 32 * index) for index in range(count)]
    segments = [header for header in headers if header[0] == _ELF32_LOAD]
    start = segments[0][3]
    memory, end = bytearray(), start
    for _type, offset, _virtual, physical, file_size, memory_size, _flags, _align in segments:
        memory += bytes(physical - start - len(memory)) + elf[offset : offset + file_size]
        end = max(end, physical + memory_size)
    return start, bytes(memory + bytes(-len(memory) % 16)), end


def _stub(start: int, size: int) -> bytes:
    """Instructions that move the kernel to `start` and jump there; esi (boot_params) is kept."""
    source = _LOADED_AT + _STUB_SIZE
    return b"".join(
        (
            b"\x89\xf3",  # mov ebx, esi
            b"\xfc",  # cld
            b"\xbe" + struct.pack("<I", source),  # mov esi, source
            b"\xbf" + struct.pack("<I", start),  # mov edi, start
            b"\xb9" + struct.pack("<I", size // 4),  # mov ecx, size / 4
            b"\xf3\xa5",  # rep movsd
            b"\x89\xde",  # mov esi, ebx
            b"\xb8" + struct.pack("<I", start),  # mov eax, start
            b"\xff\xe0",  # jmp eax
        )
    )
