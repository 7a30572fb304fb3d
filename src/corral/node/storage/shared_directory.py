"""The marker of a shared directory: which cluster's it is, and its id.

    cluster    the hash of the cluster's authority
    id         the id of the storage in it (``Storage.id``)

A host whose mount is missing finds an empty directory, and a host that mounts another export finds
another marker: both are refused, as machines would start on disks of their own.  Only the first
host writes the marker, and only where it has had no shared directory before.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

from corral import files
from corral.failures import describe
from corral.node.storage.error import StorageError
from corral.node.storage.storage import identifier_in

_CLUSTER: Final = "cluster"


def create(directory: Path, cluster: str, remembered: Path) -> str:
    """Return the id of a shared directory; make an empty one that of a cluster.

    remembered: the file in which this host keeps the id that it has seen before.
    Raises StorageError, naming the directory.
    """
    before = remembered.read_text().strip() if remembered.exists() else ""
    _require_usable(directory)
    if not (directory / _CLUSTER).exists():
        if before:
            raise StorageError(
                f"{directory} is not the shared directory of before: its marker is missing",
                f"Mount that one there. To give its volumes up, remove {remembered}.",
            )
        if any(directory.iterdir()):
            raise StorageError(
                f"{directory} has files of others in it",
                "Make an empty directory for corral in it, and name that.",
            )
        identifier_in(directory)
        files.replace(directory / _CLUSTER, cluster.encode(), durable=True)
    found = identify(directory, cluster)
    if before not in ("", found):
        raise StorageError(
            f"{directory} is another shared directory ({found}) than before ({before})",
            f"Mount that one there. To give its volumes up, remove {remembered}.",
        )
    if not before:
        files.replace(remembered, found.encode(), durable=True)
    return found


def check(directory: Path, cluster: str) -> str:
    """Return the id of a cluster's shared directory, which this host can write.

    Raises StorageError, naming the directory.
    """
    _require_usable(directory)
    return identify(directory, cluster)


def identify(directory: Path, cluster: str) -> str:
    """Return the id of a cluster's shared directory.

    Raises StorageError, naming the directory.
    """
    try:
        owner = (directory / _CLUSTER).read_text(encoding="ascii").strip()
        identifier = (directory / "id").read_text(encoding="ascii").strip()
    except FileNotFoundError as error:
        raise StorageError(
            f"{directory} is no shared directory of this cluster: its marker is missing",
            "Is it mounted here? The first host makes the marker: corral up --shared-storage.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the marker of {directory} cannot be read: {error}") from error
    if owner != cluster:
        raise StorageError(
            f"{directory} is the shared directory of another cluster ({owner})",
            "Mount that of this cluster there.",
        )
    return identifier


def _require_usable(directory: Path) -> None:
    """Raise StorageError unless this process can write files there that are its own."""
    if not directory.is_dir():
        raise StorageError(f"{directory} is no directory", "Create and mount it first.")
    try:
        if fault := files.untrusted(directory):
            raise StorageError(f"{directory} {fault}", "chmod go-w, and chown it to corral's user.")
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe-") as probe:
            owner = os.fstat(probe.fileno()).st_uid
    except OSError as error:
        raise StorageError(f"{directory} cannot be written: {describe(error)}", _hint(error)) from (
            error
        )
    if owner != os.geteuid():
        raise StorageError(
            f"files that corral writes to {directory} belong to uid {owner}",
            "Export it to corral's user, for NFS and root with no_root_squash.",
        )


def _hint(error: OSError) -> str:
    if error.errno == errno.EROFS:
        return "Mount it read-write."
    return "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
