"""The bootable disk: an ISO 9660 image that also carries a master boot record ("isohybrid").

ISOLINUX loads the kernel from it, whether the firmware sees a hard disk or a CD-ROM, and no program
of the host is needed to make it. The guest finds it by its label and mounts it. Its size is a
multiple of 1 MiB, as disks want it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pycdlib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LABEL = "DEMO"
_DISK_ID = 0x636F7272
_SETTINGS = """\
DEFAULT demo
PROMPT 0
NOESCAPE 1
LABEL demo
  LINUX /vmlinuz
  INITRD /initrd
  APPEND {command_line}
"""


def write_disk(
    target: Path,
    *,
    loader: bytes,
    library: bytes,
    kernel: bytes,
    initramfs: bytes,
    command_line: str,
    system: Mapping[str, bytes],
) -> None:
    """Writes the disk to `target`; `loader` is isolinux.bin and `library` its ldlinux.c32.

    `system` are the executable files of its directory `system`, by name.
    """
    contents = {
        "/ISOLINUX.BIN;1": loader,
        "/LDLINUX.C32;1": library,
        "/ISOLINUX.CFG;1": _SETTINGS.format(command_line=command_line).encode(),
        "/VMLINUZ.;1": kernel,
        "/INITRD.;1": initramfs,
    }
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident=_LABEL, rock_ridge="1.09")
    for path, content in contents.items():
        name = path.lower().strip("/").removesuffix(";1").removesuffix(".")
        image.add_fp(io.BytesIO(content), len(content), path, rr_name=name)
    image.add_directory("/SYSTEM", rr_name="system")
    for number, (name, content) in enumerate(system.items()):
        image.add_fp(
            io.BytesIO(content), len(content), f"/SYSTEM/{number}.;1",
            rr_name=name, file_mode=0o100755,
        )  # fmt: skip
    image.add_eltorito(
        "/ISOLINUX.BIN;1", "/BOOT.CAT;1", rr_bootcatname="boot.cat",
        boot_load_size=4, boot_info_table=True,
    )  # fmt: skip
    image.add_isohybrid(mbr_id=_DISK_ID)
    image.write(str(target))
    image.close()
