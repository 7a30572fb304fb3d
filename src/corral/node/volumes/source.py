"""The context and the error of volume sources."""

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
"""Directory of volume files in a machine's directory."""


class VolumeError(Exception):
    """A volume cannot be prepared; ``str()`` is the message.

    reason: one CamelCase word, a kubelet's ``FailedMount``.
    message: what is wrong, naming the volume.
    hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "", reason: str = FAILED_MOUNT) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint


def failed(volume: Volume, cause: str, hint: str = "") -> VolumeError:
    """Return the error of one volume, worded as a kubelet does."""
    return VolumeError(f'MountVolume.SetUp failed for volume "{volume.name}" : {cause}', hint)


Values = Callable[[str], Awaitable[Mapping[str, bytes]]]


async def _absent(*_names: str) -> NoReturn:
    raise NotFound("this context has no API")


async def _no_claim(_name: str) -> NoReturn:
    raise StorageError("this context has no storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeContext:
    """The machine whose volumes are prepared, and functions that read the objects they refer to.

    directory: the machine's own, removed with the machine; volumes lie in ``volumes/`` of it.
    secret, config_map: return the values of an object by name, in the machine's namespace; raise
    NotFound.
    credentials: returns the registry credentials of a pull secret by name; raises NotFound.
    claim: returns the volume of a claim by name; raises StorageError.
    token: returns a new token of a ServiceAccount by name, for the machine's pod; raises NotFound.
    pod: returns the machine's pod; raises NotFound.
    host_disks: the directory below which hostDisks may be; None disables them.
    progress: called with the progress of pulls.
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
        """Return the path of a volume's file; creates its directory."""
        folder = self.directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / name

    async def secret_of(
        self, volume: Volume, name: str, *, optional: bool = False
    ) -> Mapping[str, bytes]:
        """Return the values of a Secret; none if it is optional and missing."""
        return await self._values(volume, self.secret, f'secret "{name}"', name, optional=optional)

    async def config_map_of(
        self, volume: Volume, name: str, *, optional: bool = False
    ) -> Mapping[str, bytes]:
        """Return the values of a ConfigMap; none if it is optional and missing."""
        description = f'configmap "{name}"'
        return await self._values(volume, self.config_map, description, name, optional=optional)

    async def _values(
        self, volume: Volume, read: Values, description: str, name: str, *, optional: bool
    ) -> Mapping[str, bytes]:
        try:
            return await read(name)
        except NotFound as error:
            if optional:
                return {}
            hint = f"create it in the namespace {self.vmi.metadata.namespace}"
            raise failed(volume, f"{description} not found", hint) from error
