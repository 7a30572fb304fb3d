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


def unsigned(module: bytes) -> bytes:
    """`module` without its signature, whose check costs an emulated processor milliseconds."""
    if not module.endswith(_SIGNATURE_MARK):
        return module
    end = len(module) - len(_SIGNATURE_MARK)
    (signature_size,) = struct.unpack_from(">I", module, end - 4)
    return module[: end - 12 - signature_size]
