"""Attachments of pods to a CNI network on disk, so that each is released whatever happens.

One file for each, written before the plugins are asked to add it, and removed after they have
deleted it.  It has all that DEL takes: the configuration may change meanwhile.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from corral import files
from corral.api.object import Document
from corral.node.network.cni.configuration import NetworkConfiguration

NAMESPACES: Final = Path("/run/netns")
"""The network namespaces of container runtimes and ip(8); plugins may look for them there."""
_SUFFIX: Final = ".json"


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment of a pod to a network.

    container: its ID, new for each attempt.
    uid: of the VMI, its machine's ID; namespace, pod, pod_uid: of its launcher pod.
    directories: of plugins.
    result: that of ADD, once it has succeeded.
    released: whether another attempt has taken its place.
    """

    container: str
    uid: str
    namespace: str
    pod: str
    pod_uid: str
    configuration: NetworkConfiguration
    capabilities: Mapping[str, Any]
    directories: Sequence[str]
    result: Document | None = None
    released: bool = False

    @property
    def path(self) -> Path:
        """The file on which its network namespace is mounted."""
        return NAMESPACES / f"corral-{self.container}"


class Attachments:
    """The attachments in a directory, read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        paths = sorted(directory.glob(f"[!.]*{_SUFFIX}"))
        found = (files.read_json(each, Attachment) for each in paths)
        self._all = {each.container: each for each in found if each is not None}

    def write(self, attachment: Attachment) -> None:
        """Write an attachment, so that it survives a power cut.  Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = msgspec.json.encode(attachment)
        files.replace(self.file(attachment.container), content, durable=True)
        self._all[attachment.container] = attachment

    def get(self, container: str) -> Attachment | None:
        """Return an attachment, if it has not been deleted."""
        return self._all.get(container)

    def delete(self, container: str) -> None:
        """Delete an attachment.  Raises OSError."""
        self.file(container).unlink(missing_ok=True)
        self._all.pop(container, None)

    def all(self) -> list[Attachment]:
        """Return the attachments."""
        return list(self._all.values())

    def of(self, uid: str) -> list[Attachment]:
        """Return those of a VMI."""
        return [each for each in self.all() if each.uid == uid]

    def live(self, uid: str) -> Attachment | None:
        """Return the one that a VMI's machine runs with, if there is one."""
        found = (each for each in self.of(uid) if each.result is not None and not each.released)
        return next(found, None)

    def file(self, container: str) -> Path:
        """Return the file of an attachment."""
        return self._directory / f"{container}{_SUFFIX}"
