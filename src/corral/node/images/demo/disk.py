"""The bootable disk: an ISO 9660 image that also carries a master boot record ("isohybrid").

ISOLINUX loads the kernel from it, whether the firmware sees a hard disk or a CD-ROM, and no program
of the host is needed to make it. Its size is a multiple of 1 MiB, as disks want it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pycdlib

if TYPE_CHECKING:
    from pathlib import Path

_DISK_ID = 0x636F7272  # fixed, so that the same guest gives the same bytes
_SETTINGS = """\
DEFAULT demo
PROMPT 0
NOESCAPE 1
LABEL demo
  LINUX /VMLINUZ
  INITRD /INITRD
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
) -> None:
    """Writes the disk to `target`; `loader` is isolinux.bin and `library` its ldlinux.c32."""
    contents = {
        "/ISOLINUX.BIN;1": loader,
        "/LDLINUX.C32;1": library,
        "/ISOLINUX.CFG;1": _SETTINGS.format(command_line=command_line).encode(),
        "/VMLINUZ.;1": kernel,
        "/INITRD.;1": initramfs,
    }
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident="DEMO")
    for path, content in contents.items():
        image.add_fp(io.BytesIO(content), len(content), path)
    image.add_eltorito("/ISOLINUX.BIN;1", "/BOOT.CAT;1", boot_load_size=4, boot_info_table=True)
    image.add_isohybrid(mbr_id=_DISK_ID)
    image.write(str(target))
    image.close()
