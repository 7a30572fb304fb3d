"""Builds the demo guest: packages -> kernel and initramfs -> disk.

What leads to the login prompt lives in the initramfs; the programs that are started afterwards are
files of the disk, which cost memory only where they are used. What stands in the way of a quick
boot under emulation is left out: the kernel's decompressor, module signatures, and (by the command
line) the probing of hardware that no virtual machine has.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
from fnmatch import fnmatch
from importlib.resources import as_file, files as resources
from typing import TYPE_CHECKING

from corral.node.images.demo import cpio, deb, kernel, modules, packages
from corral.node.images.demo.disk import write_disk
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MODULES = (
    # virtio: bus, disk, network card, agent's port, memory balloon, entropy
    "virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_balloon", "virtio_rng",
    # the other disks and network cards that machines of KubeVirt may have
    "ahci", "virtio_scsi", "sd_mod", "sr_mod", "e1000", "e1000e", "8139cp",
    # the power button, and cloud-init's disk
    "button", "evdev", "isofs", "vfat", "nls_cp437", "nls_ascii", "nls_utf8",
    # the watchdog
    "i6300esb",
)  # fmt: skip

COMMAND_LINE = " ".join(
    (
        "console=ttyS0 quiet panic=5",
        "no_timer_check",  # its check of the timer panics now and then when the host is busy
        "cryptomgr.notests",  # the self-tests of all ciphers
        "noisapnp",  # a third of a second of looking for ISA cards
        "nolapic_timer",  # a tenth of a second of calibration; HPET or PIT ticks as well
        # Ticks are lost while the machine has had its share of a processor: compared with them the
        # clock would be found wrong, and the kernel would tick all the time instead.
        "tsc=reliable",
        "highres=off",  # the kernel ticks all the time: without high resolution, for less
        "initcall_blacklist=tracer_init_tracefs",  # megabytes of files for tracing
        "lsm=",  # AppArmor and friends, which no one configures here
        # The firmware names a range beyond 4 GiB reserved; this kernel of 32 bits takes that for
        # all of its addresses, and would have no room for a device that is plugged in later.
        "pci=no_e820",
    )
)

_BUSYBOX = "bin/busybox"
# Programs of the disk, and where the guest looks for them.
_PROGRAMS = {
    "usr/sbin/dropbear": "sbin/dropbear",
    "usr/bin/dropbearkey": "bin/dropbearkey",
    "usr/sbin/qemu-ga": "sbin/qemu-ga",
    "usr/sbin/dhcpcd": "sbin/dhcpcd",  # for IPv6: Debian's busybox has no client for it
    # the other ends of scp, of today and of before OpenSSH 9
    "usr/lib/openssh/sftp-server": "usr/lib/sftp-server",
    "usr/bin/scp": "bin/scp",
}
_LIBRARIES = (
    "ld-linux.so.2", "libc.so.6", "libcrypt.so.1", "libglib-2.0.so.0",
    "libgmodule-2.0.so.0", "libgmp.so.10",
    "libm.so.6", "libnuma.so.1", "libpcre2-8.so.0", "libresolv.so.2", "libtomcrypt.so.1",
    "libtommath.so.1", "libudev.so.1", "liburing.so.2", "libz.so.1",
)  # fmt: skip
_SYSTEM = "/system"  # where the guest mounts its disk's directory of programs and libraries
_LOADER = "usr/lib/ISOLINUX/isolinux.bin"
_LOADER_LIBRARY = "usr/lib/syslinux/modules/bios/ldlinux.c32"
_DIRECTORIES = ("dev", "mnt", "proc", "run", "sys", "system", "tmp", "var/log", "etc/dropbear")


async def build_demo(target: Path, *, cache: Path, progress: Callable[[str], None]) -> Path:
    """Writes the demo guest's disk (raw, 30 MB) to `target` and returns that.

    Packages are kept in `cache`, so that a second build needs no network. `progress` is called
    with a line for each step. Raises DemoError.
    """
    found = await packages.fetch(cache, progress)
    progress("unpacking")
    size_bytes = await asyncio.to_thread(_build, found, target)
    progress(f"{target} is ready: {size_bytes // 10**6} MB")
    return target


def demo_recipe_digest(cache: Path | None = None) -> str:
    """Changes when the disk would: a digest of this package and of the fetched packages' names.

    Without a `cache`, or before the first build, the packages count by name only.
    """
    digest = hashlib.sha256()
    with as_file(resources(__package__)) as directory:
        for path in sorted(_recipe_files(directory)):
            digest.update(f"{path.relative_to(directory)}\n".encode() + path.read_bytes())
    fetched = packages.fetched(cache) if cache else []
    for name in sorted(package.name for package in fetched):
        digest.update(f"{name}\n".encode())
    return digest.hexdigest()[:16]


def _recipe_files(directory: Path) -> list[Path]:
    return [
        path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]


def _build(found: list[Path], target: Path) -> int:
    files: dict[str, bytes] = {}
    for package in found:
        files |= deb.files(package, _is_wanted)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_disk(
            temporary,
            loader=_only(files, _LOADER),
            library=_only(files, _LOADER_LIBRARY),
            kernel=kernel.unpack(_only(files, "boot/vmlinuz-*")),
            initramfs=cpio.archive(_guest(files)),
            system=_system(files),
            command_line=COMMAND_LINE,
        )
        temporary.replace(target)
        return target.stat().st_size
    except OSError as error:
        raise DemoError(
            f"the disk cannot be written to {target}: {error}",
            "free space, or choose another place",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_wanted(path: str) -> bool:
    name = posixpath.basename(path)
    return (
        path in _PROGRAMS
        or path in {_BUSYBOX, _LOADER, _LOADER_LIBRARY}
        or path.startswith("boot/vmlinuz-")
        or (name.endswith(".ko") and "/kernel/" in path)
        # a library is a link to a file whose name goes on, or has the version before `.so`
        or any(fnmatch(name, f"{library.partition('.so')[0]}*.so*") for library in _LIBRARIES)
    )


def _only(files: Mapping[str, bytes], pattern: str) -> bytes:
    matches = [path for path in files if fnmatch(path, pattern)]
    if len(matches) != 1:
        raise DemoError(
            f"{len(matches)} files {pattern} in the guest's packages, one was expected",
            "another version of a package may be needed: please report it",
        )
    return files[matches[0]]


def _guest(files: dict[str, bytes]) -> list[cpio.Entry]:
    """All that the initramfs holds."""
    entries = [cpio.directory(path) for path in _DIRECTORIES]
    entries += [
        cpio.directory("root", 0o700),
        cpio.character_device("dev/console", 5, 1),
        cpio.link("var/run", "/run"),
        cpio.file("bin/busybox", _only(files, _BUSYBOX), 0o755),
        # where programs look for the loader of libraries, and that for libraries
        cpio.link("lib/ld-linux.so.2", f"{_SYSTEM}/ld-linux.so.2"),
        cpio.link("lib/i386-linux-gnu", _SYSTEM),
    ]
    entries += [cpio.link(f"bin/{name}", "busybox") for name in _applets(files[_BUSYBOX])]
    entries += [
        cpio.link(inside, f"{_SYSTEM}/{posixpath.basename(inside)}")
        for inside in _PROGRAMS.values()
    ]
    return entries + _modules(files) + _overlay()


def _system(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The programs that run after the login prompt is there, and their libraries, by name."""
    programs = {
        posixpath.basename(inside): _only(files, path) for path, inside in _PROGRAMS.items()
    }
    return programs | {name: _library(files, name) for name in _LIBRARIES}


def _applets(busybox: bytes) -> list[str]:
    """The names that busybox answers to: a table of strings in it, which begins with `[`."""
    names = busybox.partition(b"\0[\0[[\0")[2].partition(b"\0\0")[0].decode().split("\0")
    if "sh" not in names:
        raise DemoError(
            "busybox's list of applets was not found in it",
            "another version of a package may be needed: please report it",
        )
    return ["[", "[[", *(name for name in names if name != "busybox")]


def _library(files: Mapping[str, bytes], name: str) -> bytes:
    paths = sorted(path for path in files if posixpath.basename(path) == name)
    if not paths:
        raise DemoError(
            f"the guest's packages lack the library {name}",
            "another version of a package may be needed: please report it",
        )
    return files[paths[0]]


def _modules(files: Mapping[str, bytes]) -> list[cpio.Entry]:
    paths = {modules.name_of(path): path for path in files if path.endswith(".ko")}
    release = next(iter(paths.values())).split("lib/modules/")[1].split("/")[0]
    every = {name: files[path] for name, path in paths.items()}
    chosen = {name: modules.unsigned(every[name]) for name in modules.closure(MODULES, every)}
    folder = f"lib/modules/{release}"
    tables = {
        "modules.dep": modules.dependency_table(chosen),
        "modules.alias": modules.alias_table(chosen),
        "modules.symbols": "",
    }
    return [cpio.file(f"{folder}/{name}.ko", module) for name, module in chosen.items()] + [
        cpio.file(f"{folder}/{name}", table.encode()) for name, table in tables.items()
    ]


def _overlay() -> list[cpio.Entry]:
    """The guest's own files. What begins as a script is executable: a wheel keeps no modes."""
    with as_file(resources(__package__) / "guest") as directory:
        return [
            _own_file(path.relative_to(directory).as_posix(), path.read_bytes())
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        ]


def _own_file(path: str, content: bytes) -> cpio.Entry:
    if path == "etc/shadow":
        return cpio.file(path, content, 0o600)
    return cpio.file(path, content, 0o755 if content.startswith(b"#!") else 0o644)
