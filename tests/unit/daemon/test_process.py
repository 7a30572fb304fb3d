"""The process of a manager or a node: how it uses memory."""

import subprocess
import sys

REUSE = """
import ctypes
from pathlib import Path
from corral.daemon import process

process.free_large_blocks()
bytearray(8 << 20)
block = bytearray(1 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
[heap] = [line for line in Path("/proc/self/maps").read_text().splitlines() if "[heap]" in line]
begin, end = (int(each, 16) for each in heap.split()[0].split("-"))
print(begin <= address < end)
"""


def test_a_large_block_is_no_part_of_the_heap_after_a_larger_one_was_freed():
    command = [sys.executable, "-c", REUSE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
