"""Kernel modules: their dependencies, and the tables that modprobe reads.

Both come from the modules' section `.modinfo`.
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
_OMITTED = frozenset({b".BTF", b".orc_unwind", b".orc_unwind_ip"})
_SIGNATURE_MARK = b"~Module signature appended~\n"


def name_of(path: str) -> str:
    """Return the module's name in the kernel's spelling."""
    return PurePosixPath(path).stem.replace("-", "_")


def modinfo(module: bytes, key: str) -> list[str]:
    """Return the values of `key` in `.modinfo`, such as `depends` and `alias`."""
    pattern = rb"(?<=\0)" + key.encode() + rb"=([^\0]*)\0"
    return [value.decode() for value in re.findall(pattern, module)]


def dependencies(module: bytes) -> list[str]:
    return [
        name.replace("-", "_")
        for line in modinfo(module, "depends")
        for name in line.split(",")
        if name
    ]


def closure(names: Iterable[str], modules: Mapping[str, bytes]) -> list[str]:
    """Return `names` and all their dependencies, each after its own.

    Names that `modules` lacks are built into the kernel.
    """
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order or name not in modules:
            return
        for needed in dependencies(modules[name]):
            visit(needed)
        order[name] = None

    for name in names:
        visit(name)
    return list(order)


def dependency_table(modules: Mapping[str, bytes]) -> str:
    """Return modules.dep: each module's file and its dependencies, nearest first."""
    lines = []
    for name in modules:
        needed = closure(dependencies(modules[name]), modules)
        lines.append(" ".join([f"{name}.ko:", *(f"{other}.ko" for other in reversed(needed))]))
    return "\n".join(lines) + "\n"


def alias_table(modules: Mapping[str, bytes]) -> str:
    """Return modules.alias: the device aliases of each module."""
    return "".join(
        f"alias {alias} {name}\n" for name in modules for alias in modinfo(modules[name], "alias")
    )


def lean(module: bytes) -> bytes:
    """Return `module` without its signature, and without its sections for backtraces and BPF.

    To verify a signature costs an emulated CPU milliseconds, and BTF would need the kernel's own.
    """
    module = unsigned(module)
    return _without(module, _OMITTED) if module[:5] == b"\x7fELF\x02" else module


def unsigned(module: bytes) -> bytes:
    """Return `module` without its signature."""
    if not module.endswith(_SIGNATURE_MARK):
        return module
    end = len(module) - len(_SIGNATURE_MARK)
    (signature_size,) = struct.unpack_from(">I", module, end - 4)
    return module[: end - 12 - signature_size]


def _without(module: bytes, omitted: frozenset[bytes]) -> bytes:
    """Return `module`, a relocatable ELF file, with these sections emptied."""
    (table,) = struct.unpack_from("<Q", module, 40)
    count, names = struct.unpack_from("<HH", module, 60)
    rows = [list(_SECTION.unpack_from(module, table + 64 * index)) for index in range(count)]
    text = rows[names][_OFFSET]
    out = bytearray(module[:64])
    for row in rows:
        name = module[text + row[_NAME] : module.index(b"\0", text + row[_NAME])]
        if name.removeprefix(b".rela") in omitted:
            row[_FLAGS] = row[_SIZE] = 0
        out += bytes(-len(out) % max(row[_ALIGNMENT], 1))
        if row[_TYPE] not in {_NULL, _NO_BITS}:
            content = module[row[_OFFSET] : row[_OFFSET] + row[_SIZE]]
            row[_OFFSET] = len(out)
            out += content
    out += bytes(-len(out) % 8)
    struct.pack_into("<Q", out, 40, len(out))
    return bytes(out + b"".join(_SECTION.pack(*row) for row in rows))
