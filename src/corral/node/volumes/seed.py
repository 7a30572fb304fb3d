"""Writes small ISO 9660 disks: files that a guest reads at its first boot.  The door to pycdlib."""

import io
from collections.abc import Mapping
from pathlib import Path

import pycdlib


def write(path: Path, label: str, files: Mapping[str, bytes]) -> None:
    """Write the files to a disk with Joliet and Rock Ridge names; it appears at once and complete.

    label: of the file system; names: in the disk's root, of any case and length to 64.
    Readable by its owner only, as it may hold passwords.
    """
    image = pycdlib.PyCdlib()
    image.new(interchange_level=1, joliet=3, rock_ridge="1.09", vol_ident=label)
    for number, (name, content) in enumerate(files.items()):
        image.add_fp(
            io.BytesIO(content),
            len(content),
            f"/FILE{number}.;1",  # seen by nobody: every reader knows one of the other two
            rr_name=name,
            joliet_path=f"/{name}",
            file_mode=0o100444,
        )
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        partial.chmod(0o600)
        image.write_fp(file)
    image.close()
    partial.rename(path)
