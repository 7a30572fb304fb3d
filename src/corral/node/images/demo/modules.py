"""Kernel modules: which ones a driver needs, and the tables that modprobe reads.

Both are told by the modules themselves, in the section `.modinfo`.
"""

from __future__ import annotations

import re
import struct
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# A row of the table of sections: ELF-64 Object File Format, section 5.
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NAME, _TYPE, _FLAGS, _OFFSET, _SIZE, _ALIGNMENT = 0, 1, 2, 4, 5, 8
_NULL, _NO_BITS = 0, 8
_UNWANTED = frozenset({b".BTF", b".orc_unwind", b".orc_unwind_ip"})
_SIGNATURE_MARK = b"~Module signature appended~\n"


def name_of(path: str) -> str:
    """The module's name as the kernel spells it."""
    return PurePosixPath(path).stem.replace("-", "_")


def facts(module: bytes, key: str) -> list[str]:
    """The values of `key` in the module's description, such as `depends` and `alias`."""
    pattern = rb"(?<=\0)" + key.encode() + rb"=([^\0]*)\0"
    return [value.decode() for value in re.findall(pattern, module)]


def dependencies(module: bytes) -> list[str]:
    return [
        name.replace("-", "_")
        for line in facts(module, "depends")
        for name in line.split(",")
        if name
    ]


def closure(wanted: Iterable[str], modules: Mapping[str, bytes]) -> list[str]:
    """`wanted` and all that they depend on, each after what it needs.

    A module that `modules` lacks is built into the kernel.
    """
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order or name not in modules:
            return
        for needed in dependencies(modules[name]):
            visit(needed)
        order[name] = None

    for name in wanted:
        visit(name)
    return list(order)


def dependency_table(modules: Mapping[str, bytes]) -> str:
    """modules.dep: each module's file, then all that must be loaded before, nearest first."""
    lines = []
    for name in modules:
        needed = closure(dependencies(modules[name]), modules)
        lines.append(" ".join([f"{name}.ko:", *(f"{other}.ko" for other in reversed(needed))]))
    return "\n".join(lines) + "\n"


def alias_table(modules: Mapping[str, bytes]) -> str:
    """modules.alias: which devices each module drives."""
    return "".join(
        f"alias {alias} {name}\n" for name in modules for alias in facts(modules[name], "alias")
    )


def lean(module: bytes) -> bytes:
    """`module` without its signature, and with nothing for backtraces and BPF to be kept of it.

    Checking a signature costs an emulated processor milliseconds, and types that go with the
    kernel's own would have these read.
    """
    module = unsigned(module)
    return _without(module, _UNWANTED) if module[:5] == b"\x7fELF\x02" else module


def unsigned(module: bytes) -> bytes:
    """`module` without its signature."""
    if not module.endswith(_SIGNATURE_MARK):
        return module
    end = len(module) - len(_SIGNATURE_MARK)
    (signature_size,) = struct.unpack_from(">I", module, end - 4)
    return module[: end - 12 - signature_size]


def _without(module: bytes, unwanted: frozenset[bytes]) -> bytes:
    """`module`, an ELF file to be linked, with these of its sections empty."""
    (table,) = struct.unpack_from("<Q", module, 40)
    count, names = struct.unpack_from("<HH", module, 60)
    rows = [list(_SECTION.unpack_from(module, table + 64 * index)) for index in range(count)]
    text = rows[names][_OFFSET]
    out = bytearray(module[:64])
    for row in rows:
        name = module[text + row[_NAME] : module.index(b"\0", text + row[_NAME])]
        if name.removeprefix(b".rela") in unwanted:
            row[_FLAGS] = row[_SIZE] = 0
        out += bytes(-len(out) % max(row[_ALIGNMENT], 1))
        if row[_TYPE] not in {_NULL, _NO_BITS}:
            content = module[row[_OFFSET] : row[_OFFSET] + row[_SIZE]]
            row[_OFFSET] = len(out)
            out += content
    out += bytes(-len(out) % 8)
    struct.pack_into("<Q", out, 40, len(out))
    return bytes(out + b"".join(_SECTION.pack(*row) for row in rows))
