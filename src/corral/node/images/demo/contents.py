"""Contents of the demo guest's disk: two initramfs, and the root directory.

An initramfs occupies memory until the root is mounted, so it has only what mounts it. The root's
programs are files of the disk, which occupy memory only while they are used.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import as_file, files as resources
from typing import TYPE_CHECKING

from corral.node.images.demo import cpio, modules
from corral.node.images.demo.errors import DemoError
from corral.node.reseed_program import RESEED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Modules for the boot disk and its file systems; FIRST_MODULES are loaded in every machine.
_DISKS = ("virtio_scsi", "ahci", "sd_mod", "sr_mod", "isofs")
FIRST_MODULES = ("virtio_pci", "virtio_blk", "overlay", "crc32c_generic", "ext4", *_DISKS)
MODULES = (
    *_DISKS,
    # virtio: network card, agent's port, memory balloon, entropy, memory that is plugged in
    "virtio_net", "virtio_console", "virtio_balloon", "virtio_rng", "virtio_mem",
    # the other network cards that machines of KubeVirt may have
    "e1000", "e1000e", "8139cp",
    # the power button, and the file systems of other disks
    "button", "evdev", "vfat", "nls_cp437", "nls_ascii", "nls_utf8",
    # the watchdog
    "i6300esb",
)  # fmt: skip

_BUSYBOX = "bin/busybox"
# Programs of packages -> their paths in the guest.
_PROGRAMS = {
    "usr/sbin/dropbear": "sbin/dropbear",
    "usr/bin/dropbearkey": "bin/dropbearkey",
    "usr/sbin/qemu-ga": "sbin/qemu-ga",
    "usr/sbin/dhcpcd": "sbin/dhcpcd",  # for IPv6: Debian's busybox has no client for it
    # the remote ends of scp, since OpenSSH 9 and before
    "usr/lib/openssh/sftp-server": "usr/lib/sftp-server",
    "usr/bin/scp": "bin/scp",
    "sbin/e2fsck": "sbin/e2fsck",
    "sbin/mke2fs": "sbin/mkfs.ext4",  # BusyBox's own of that name makes ext2
    "sbin/resize2fs": "sbin/resize2fs",
}
_LIBRARIES = (
    "ld-linux.so.2", "libblkid.so.1", "libc.so.6", "libcom_err.so.2", "libcrypt.so.1",
    "libe2p.so.2", "libext2fs.so.2", "libglib-2.0.so.0", "libgmodule-2.0.so.0", "libgmp.so.10",
    "libm.so.6", "libnuma.so.1", "libpcre2-8.so.0", "libresolv.so.2", "libtomcrypt.so.1",
    "libtommath.so.1", "libudev.so.1", "liburing.so.2", "libuuid.so.1", "libz.so.1",
)  # fmt: skip
_LIBRARY_DIRECTORY = "lib/i386-linux-gnu"
_DIRECTORIES = (
    "base", "dev", "disk", "etc/dropbear", "home", "mnt", "proc", "run", "sys", "tmp",
    "var/lib/cloud", "var/log",
)  # fmt: skip
_INITRAMFS_DIRECTORIES = ("base", "dev", "disk", "proc", "run", "sys", "sysroot")
_HINT = "another version of a package may be needed: please report it"


@dataclass(frozen=True, slots=True)
class Boot:
    """A kernel image and its initramfs."""

    kernel: bytes
    initramfs: bytes


def is_included(path: str) -> bool:
    """Report whether the guest includes the file `path` of a package."""
    name = posixpath.basename(path)
    return (
        path in _PROGRAMS
        or path == _BUSYBOX
        or path.startswith("boot/vmlinuz-")
        or (name.endswith(".ko") and "/kernel/" in path)
        # a library is a link to a file whose name goes on, or has the version before `.so`
        or any(fnmatch(name, f"{library.partition('.so')[0]}*.so*") for library in _LIBRARIES)
    )


def boot(files: Mapping[str, bytes], kind: str) -> Boot:
    """Return the only kernel whose release ends in `kind`, and its initramfs."""
    path = only(files, f"boot/vmlinuz-*-{kind}")
    release = path.removeprefix("boot/vmlinuz-")
    entries = [cpio.directory(path) for path in _INITRAMFS_DIRECTORIES]
    entries += [cpio.character_device("dev/console", 5, 1)]
    entries += _busybox(files[only(files, _BUSYBOX)], _FIRST_APPLETS)
    entries += _modules(files, release, FIRST_MODULES)
    entries += _own("initramfs")
    return Boot(files[path], cpio.archive(entries))


def root(files: Mapping[str, bytes]) -> list[cpio.Entry]:
    """Return the entries of the root directory, each after its parent."""
    entries = [cpio.directory(path) for path in _DIRECTORIES]
    entries += [
        cpio.directory("root", 0o700),
        cpio.directory("tmp", 0o1777),
        cpio.link("var/run", "/run"),
        cpio.link("lib/ld-linux.so.2", f"/{_LIBRARY_DIRECTORY}/ld-linux.so.2"),
        cpio.link("sbin/modprobe", "/bin/busybox"),  # which the kernel calls for file systems
    ]
    busybox = files[only(files, _BUSYBOX)]
    entries += _busybox(_without_wget(busybox), _applets(busybox))
    entries += [
        cpio.file(inside, files[only(files, path)], 0o755) for path, inside in _PROGRAMS.items()
    ]
    entries += [
        cpio.file(f"{_LIBRARY_DIRECTORY}/{name}", _library(files, name), 0o755)
        for name in _LIBRARIES
    ]
    for path in sorted(path for path in files if path.startswith("boot/vmlinuz-")):
        entries += _modules(files, path.removeprefix("boot/vmlinuz-"), MODULES)
    entries.append(cpio.file("usr/lib/demo/reseed", RESEED, 0o755))
    return cpio.complete(entries + _own("guest"))


def only(files: Mapping[str, bytes], pattern: str) -> str:
    """Return the path of the only file that matches `pattern`.  Raises DemoError."""
    matches = [path for path in files if fnmatch(path, pattern)]
    if len(matches) != 1:
        raise DemoError(
            f"{len(matches)} files {pattern} in the guest's packages, one was expected", _HINT
        )
    return matches[0]


_FIRST_APPLETS = (
    "[", "blockdev", "cat", "chroot", "dd", "mkdir", "modprobe", "mount", "printf", "rm", "sh",
    "switch_root", "umount", "usleep",
)  # fmt: skip


def _busybox(busybox: bytes, applets: Sequence[str]) -> list[cpio.Entry]:
    return [
        cpio.file("bin/busybox", busybox, 0o755),
        *(cpio.link(f"bin/{name}", "busybox") for name in applets),
    ]


# Debian's busybox crashes on `wget -T`, and its shell prefers applets to programs in $PATH. So the
# applet is renamed, keeping the sort order, and a script is installed as wget.
_WGET, _OTHER_WGET = b"\0wget\0", b"\0wgeT\0"


def _without_wget(busybox: bytes) -> bytes:
    before, mark, after = busybox.partition(_NAMES)
    names, end, rest = after.partition(b"\0\0")
    return before + mark + names.replace(_WGET, _OTHER_WGET) + end + rest


_NAMES = b"\0[\0[[\0"  # the start of busybox's table of applet names


def _applets(busybox: bytes) -> list[str]:
    names = busybox.partition(_NAMES)[2].partition(b"\0\0")[0].decode().split("\0")
    if "sh" not in names:
        raise DemoError("busybox's list of applets was not found in it", _HINT)
    return ["[", "[[", *(name for name in names if name != "busybox")]


def _library(files: Mapping[str, bytes], name: str) -> bytes:
    paths = sorted(path for path in files if posixpath.basename(path) == name)
    if not paths:
        raise DemoError(f"the guest's packages lack the library {name}", _HINT)
    return files[paths[0]]


def _modules(files: Mapping[str, bytes], release: str, names: tuple[str, ...]) -> list[cpio.Entry]:
    """Return the modules of `names` with their dependencies, and modprobe's tables."""
    every = {
        modules.name_of(path): content
        for path, content in files.items()
        if path.endswith(".ko") and f"lib/modules/{release}/" in path
    }
    chosen = {name: modules.lean(every[name]) for name in modules.closure(names, every)}
    folder = f"lib/modules/{release}"
    tables = {
        "modules.dep": modules.dependency_table(chosen),
        "modules.alias": modules.alias_table(chosen),
        "modules.symbols": "",
    }
    return [cpio.file(f"{folder}/{name}.ko", module) for name, module in chosen.items()] + [
        cpio.file(f"{folder}/{name}", table.encode()) for name, table in tables.items()
    ]


def _own(folder: str) -> list[cpio.Entry]:
    """Return our own files. Scripts are made executable, since a wheel keeps no modes."""
    with as_file(resources(__package__) / folder) as directory:
        return [
            _own_file(path.relative_to(directory).as_posix(), path.read_bytes())
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        ]


def _own_file(path: str, content: bytes) -> cpio.Entry:
    if path == "etc/shadow":
        return cpio.file(path, content, 0o600)
    return cpio.file(path, content, 0o755 if content.startswith(b"#!") else 0o644)
