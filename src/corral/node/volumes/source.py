"""What every volume source is given, and what it answers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lightkube.models.core_v1 import Pod

from corral.api.errors import NotFound
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume
from corral.node.images import Credential, Report
from corral.node.images.progress import silent
from corral.node.images.store import ImageStore
from corral.node.storage import StorageError, StoredVolume

FAILED_MOUNT = "FailedMount"
FOLDER = "volumes"
"""The part of a machine's directory that holds the files of its volumes."""


class VolumeError(Exception):
    """A volume cannot be had; ``str()`` is the message.

    reason: one CamelCase word, a kubelet's ``FailedMount``.
    message: what is wrong, naming the volume.
    hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "", reason: str = FAILED_MOUNT) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint


def failed(volume: Volume, why: str, hint: str = "") -> VolumeError:
    """The error of one volume, in a kubelet's words."""
    return VolumeError(f'MountVolume.SetUp failed for volume "{volume.name}" : {why}', hint)


Values = Callable[[str], Awaitable[Mapping[str, bytes]]]


async def _absent(*_names: str) -> NoReturn:
    raise NotFound("there is no API to ask")


async def _no_claim(_name: str) -> NoReturn:
    raise StorageError("there is no storage to look in")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeContext:
    """Where volumes are prepared, and for whom.

    directory: the machine's own, removed with the machine; volumes lie in ``volumes/`` of it.
    secret, config_map: the values of one by its name, in the machine's namespace; they raise
    NotFound.
    credentials: the content of a pull secret by its name; raises NotFound.
    claim: the volume of a claim by its name; raises StorageError.
    token: a new token of a ServiceAccount by its name, for the machine's pod; raises NotFound.
    pod: the machine's pod; raises NotFound.
    host_disks: the directory below which disks of the node's own may be; None forbids them.
    progress: is told of pulls.
    """

    vmi: VirtualMachineInstance
    directory: Path
    images: ImageStore
    secret: Values
    config_map: Values
    credentials: Callable[[str], Awaitable[Sequence[Credential]]]
    claim: Callable[[str], Awaitable[StoredVolume]] = _no_claim
    token: Callable[[str], Awaitable[bytes]] = _absent
    pod: Callable[[], Awaitable[Pod]] = _absent
    host_disks: Path | None = None
    progress: Report = silent

    def file(self, name: str) -> Path:
        """The path of a volume's file."""
        folder = self.directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / name

    async def secret_of(
        self, volume: Volume, name: str, *, optional: bool = False
    ) -> Mapping[str, bytes]:
        """A secret that a volume needs; nothing where it is optional and missing."""
        return await self._values(volume, self.secret, f'secret "{name}"', name, optional=optional)

    async def config_map_of(
        self, volume: Volume, name: str, *, optional: bool = False
    ) -> Mapping[str, bytes]:
        """A config map that a volume needs; nothing where it is optional and missing."""
        what = f'configmap "{name}"'
        return await self._values(volume, self.config_map, what, name, optional=optional)

    async def _values(
        self, volume: Volume, values: Values, what: str, name: str, *, optional: bool
    ) -> Mapping[str, bytes]:
        try:
            return await values(name)
        except NotFound as error:
            if optional:
                return {}
            hint = f"create it in the namespace {self.vmi.metadata.namespace}"
            raise failed(volume, f"{what} not found", hint) from error
