"""Prepares the files behind a VMI's disks, all volumes at the same time."""

import asyncio
import binascii
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from corral.api.errors import ApiError
from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume
from corral.node import disk_cache, volumes
from corral.node.hypervisor import Drive
from corral.node.images import ImageError, Progress
from corral.node.volumes import VolumeContext, VolumeError
from corral.node.volumes.source import failed


class DriveError(Exception):
    """A volume of a VMI cannot be prepared.

    ``image`` names the container image that cannot be pulled, if that is why.
    """

    def __init__(self, volume: Volume, error: ImageError | VolumeError) -> None:
        super().__init__(error.message)
        self.reason = error.reason
        self.message = f"{error.message} ({error.hint})" if error.hint else error.message
        self.volume = volume.name
        source = volume.container_disk
        is_image = isinstance(error, ImageError) and source is not None
        self.image = source.image if is_image and source is not None else ""


_REPORTED_SHARES: Final = 8
_REPORT_SECONDS: Final = 5.0
"""A pull reports each eighth of its bytes, unless it is quicker than this: event recorders combine
the tenth of similar events with those that follow."""


class PullListener(Protocol):
    """Gets notified of image pulls."""

    def pulling(self, image: str, progress: str = "") -> None: ...

    def pulled(self, image: str, seconds: float) -> None: ...


async def prepare(context: VolumeContext, pulls: PullListener) -> Mapping[str, Drive]:
    """Prepare every volume that a disk of the VMI shows; return the drives by volume.

    Raises DriveError for the first volume that fails, after the others have finished: the next
    attempt will need them.
    """
    shown = _shown(context.vmi)
    results = await _prepare_all(shown, context, pulls)
    drives: dict[str, Drive] = {}
    for (volume, disk), result in zip(shown, results, strict=True):
        if isinstance(result, DriveError):
            raise result
        drives[volume.name] = drive = _shown_by(disk, result)
        if fault := disk_cache.fault(disk, drive):
            raise DriveError(volume, failed(volume, fault))
    return drives


def _shown(vmi: VirtualMachineInstance) -> list[tuple[Volume, Disk]]:
    sources = {volume.name: volume for volume in vmi.spec.volumes}
    return [
        (sources[disk.name], disk) for disk in vmi.spec.domain.devices.disks if disk.name in sources
    ]


async def _prepare_all(
    shown: list[tuple[Volume, Disk]], context: VolumeContext, pulls: PullListener
) -> list[Drive | DriveError]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_prepare(volume, context, pulls)) for volume, _ in shown]
    return [task.result() for task in tasks]


async def _prepare(
    volume: Volume, context: VolumeContext, pulls: PullListener
) -> Drive | DriveError:
    image = volume.container_disk.image if volume.container_disk is not None else ""
    pull = _Pull(image, pulls, asyncio.get_running_loop().time)
    try:
        disk = await volumes.prepare(volume, replace(context, progress=pull.on_progress))
    except (ImageError, VolumeError) as error:
        return DriveError(volume, error)
    except (ApiError, binascii.Error) as error:  # no such object, or a Secret that is not base64
        return DriveError(volume, failed(volume, str(error)))
    pull.finish()
    return disk


class _Pull:
    """Notifies the listener of the pull of one image, if there is one: not all of its progress."""

    def __init__(self, image: str, listener: PullListener, clock: Callable[[], float]) -> None:
        self._image = image
        self._listener = listener
        self._clock = clock
        self._begun: float | None = None
        self._reported_at = 0.0
        self._reported_share = 0

    def on_progress(self, progress: Progress) -> None:
        if progress.stage != "download":
            return
        now = self._clock()
        if self._begun is None:
            self._begun = self._reported_at = now
            self._listener.pulling(self._image)
            return
        if not progress.total_bytes or now - self._reported_at < _REPORT_SECONDS:
            return
        share = progress.done_bytes * _REPORTED_SHARES // progress.total_bytes
        if share > self._reported_share and progress.done_bytes < progress.total_bytes:
            self._reported_share, self._reported_at = share, now
            percent = progress.done_bytes * 100 // progress.total_bytes
            total = f"{progress.total_bytes >> 20} MiB"
            self._listener.pulling(self._image, f": {percent} % of {total}")

    def finish(self) -> None:
        if self._begun is not None:
            self._listener.pulled(self._image, self._clock() - self._begun)


def _shown_by(device: Disk, drive: Drive) -> Drive:
    """Open the drive of a CD-ROM or read-only disk read-only in the hypervisor, too."""
    target = device.disk or device.lun
    is_read_only = device.cdrom is not None or bool(target is not None and target.readonly)
    read_only = drive.read_only or is_read_only
    shares = drive.shares or read_only or bool(device.shareable)
    return replace(drive, read_only=read_only, shares=shares)
