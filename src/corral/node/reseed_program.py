"""A program for guests that has their kernel reseed its random numbers."""

import struct
from typing import Final

_CODE: Final = bytes.fromhex(
    "b836000000"  # mov eax, 54       ioctl
    "bb01000000"  # mov ebx, 1        of the standard output
    "b907520000"  # mov ecx, 0x5207   RNDRESEEDCRNG
    "31d2"  # xor edx, edx
    "cd80"  # int 0x80
    "89c3"  # mov ebx, eax
    "f7db"  # neg ebx                 the error number is the exit code
    "b801000000"  # mov eax, 1        exit
    "cd80"  # int 0x80
)
_BASE: Final = 0x10000
_HEADERS: Final = 0x34 + 0x20
_SIZE: Final = _HEADERS + len(_CODE)
RESEED: Final = (
    b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, _BASE + _HEADERS, 0x34, 0, 0, 0x34, 0x20, 1, 0, 0, 0)
    + struct.pack("<IIIIIIII", 1, 0, _BASE, _BASE, _SIZE, _SIZE, 5, 0x1000)
    + _CODE
)
"""A program for Linux on x86, of 32 and 64 bits, that reseeds the kernel's random numbers.

It is for guests without Perl and Python.  Without RNDRESEEDCRNG, Linux uses what is written to
/dev/urandom only at its next reseed, up to a minute later: forks would draw the same numbers.
"""
