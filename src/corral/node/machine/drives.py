"""The files behind an instance's disks: all volumes at once, so that the slowest one decides."""

import asyncio
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

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
    """A volume of an instance cannot be had.

    ``image`` names the container image that is missing, where it is one.
    """

    def __init__(self, volume: Volume, error: ImageError | VolumeError) -> None:
        super().__init__(error.message)
        self.reason = error.reason
        self.message = f"{error.message} ({error.hint})" if error.hint else error.message
        self.volume = volume.name
        source = volume.container_disk
        is_image = isinstance(error, ImageError) and source is not None
        self.image = source.image if is_image and source is not None else ""


class Pulls(Protocol):
    """Who is told of images that have to be fetched."""

    def pulling(self, image: str) -> None: ...

    def pulled(self, image: str, seconds: float) -> None: ...


async def prepare(context: VolumeContext, pulls: Pulls) -> Mapping[str, Drive]:
    """Every volume that a disk of the instance shows, by name.

    Raises DriveError for the first one that fails; the others are left in peace to finish, since
    whoever asks again will need them.
    """
    wanted = _shown(context.vmi)
    answers = await _each(wanted, context, pulls)
    drives: dict[str, Drive] = {}
    for (volume, disk), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, DriveError):
            raise answer
        drives[volume.name] = drive = _shown_by(disk, answer)
        if wrong := disk_cache.fault(disk, drive):
            raise DriveError(volume, failed(volume, wrong))
    return drives


def _shown(vmi: VirtualMachineInstance) -> list[tuple[Volume, Disk]]:
    sources = {volume.name: volume for volume in vmi.spec.volumes}
    return [
        (sources[disk.name], disk) for disk in vmi.spec.domain.devices.disks if disk.name in sources
    ]


async def _each(
    wanted: list[tuple[Volume, Disk]], context: VolumeContext, pulls: Pulls
) -> list[Drive | DriveError]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_one(volume, context, pulls)) for volume, _ in wanted]
    return [task.result() for task in tasks]


async def _one(volume: Volume, context: VolumeContext, pulls: Pulls) -> Drive | DriveError:
    image = volume.container_disk.image if volume.container_disk is not None else ""
    begun: list[float] = []
    clock = asyncio.get_running_loop().time

    def progress(told: Progress) -> None:
        if told.stage == "download" and not begun:
            begun.append(clock())
            pulls.pulling(image)

    try:
        disk = await volumes.prepare(volume, replace(context, progress=progress))
    except (ImageError, VolumeError) as error:
        return DriveError(volume, error)
    except (ApiError, binascii.Error) as error:  # a refusal, or a Secret that is not base64
        return DriveError(volume, failed(volume, str(error)))
    if begun:
        pulls.pulled(image, clock() - begun[0])
    return disk


def _shown_by(device: Disk, drive: Drive) -> Drive:
    """A CD-ROM and a disk that is read-only for its guest are so for the hypervisor too."""
    target = device.disk or device.lun
    is_read_only = device.cdrom is not None or bool(target is not None and target.readonly)
    return replace(drive, read_only=drive.read_only or is_read_only)
