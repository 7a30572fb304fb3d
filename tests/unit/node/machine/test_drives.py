"""The files behind an instance's disks."""

import asyncio
import binascii
import dataclasses
from pathlib import Path

import msgspec
import pytest

from corral.api.errors import Forbidden, Unavailable
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node import volumes
from corral.node.hypervisor import Drive
from corral.node.images import ImageError, Progress
from corral.node.images.store import ImageStore
from corral.node.machine import drives
from corral.node.machine.drives import DriveError
from corral.node.volumes import VolumeContext, VolumeError


class Pulls:
    def __init__(self) -> None:
        self.events: list[str] = []

    def pulling(self, image: str, progress: str = "") -> None:
        self.events.append(f"pulling {image}{progress}")

    def pulled(self, image: str, seconds: float) -> None:
        self.events.append(f"pulled {image}")


async def nothing(_name: str) -> dict[str, bytes]:
    return {}


def context(tmp_path: Path, *disks: dict) -> VolumeContext:
    spec = {
        "domain": {"devices": {"disks": list(disks)}},
        "volumes": [
            {"name": "root", "containerDisk": {"image": "cirros"}},
            {"name": "data", "emptyDisk": {"capacity": "1Gi"}},
            {"name": "unused", "emptyDisk": {"capacity": "1Gi"}},
        ],
    }
    document = {"metadata": {"name": "vm", "namespace": "default", "uid": "u"}, "spec": spec}
    return VolumeContext(
        vmi=msgspec.convert(document, VirtualMachineInstance),
        directory=tmp_path,
        images=ImageStore(tmp_path / "images"),
        secret=nothing,
        config_map=nothing,
        credentials=nothing,
    )


@pytest.fixture
def prepared(monkeypatch):
    """The volumes that were prepared; ``failing`` says which of them fail, and how."""

    class Prepared(list):
        failing: dict[str, Exception] = {}

    calls = Prepared()

    async def prepare(volume, given):
        calls.append(volume.name)
        if volume.name in calls.failing:
            raise calls.failing[volume.name]
        if volume.container_disk is not None:
            given.progress(Progress("download", 1, 2))
            given.progress(Progress("download", 2, 2))
        return Drive(volume=volume.name, path=given.directory / volume.name, format="raw")

    monkeypatch.setattr(volumes, "prepare", prepare)
    return calls


async def test_only_volumes_of_disks_are_prepared(tmp_path, prepared):
    disks = ({"name": "root", "disk": {}}, {"name": "data", "cdrom": {}}, {"name": "ghost"})
    pulls = Pulls()
    found = await drives.prepare(context(tmp_path, *disks), pulls)
    assert sorted(prepared) == ["data", "root"]
    assert {name: drive.read_only for name, drive in found.items()} == {"root": False, "data": True}
    assert pulls.events == ["pulling cirros", "pulled cirros"]


@pytest.mark.looptime
async def test_a_slow_pull_reports_each_eighth_of_its_bytes(tmp_path, monkeypatch):
    async def prepare(volume, given):
        for done in range(0, 1000, 5):
            given.progress(Progress("download", done << 20, 1000 << 20))
            await asyncio.sleep(1)
        given.progress(Progress("download", 1000 << 20, 1000 << 20))
        return Drive(volume=volume.name, path=given.directory / volume.name, format="raw")

    monkeypatch.setattr(volumes, "prepare", prepare)
    pulls = Pulls()
    await drives.prepare(context(tmp_path, {"name": "root", "disk": {}}), pulls)
    percents = (12, 25, 37, 50, 62, 75, 87)
    eighths = [f"pulling cirros: {percent} % of 1000 MiB" for percent in percents]
    assert pulls.events == ["pulling cirros", *eighths, "pulled cirros"]


@pytest.mark.parametrize("device", [{"disk": {"readonly": True}}, {"lun": {"readonly": True}}])
async def test_read_only_disks_are_opened_read_only(tmp_path, prepared, device):
    found = await drives.prepare(context(tmp_path, {"name": "root", **device}), Pulls())
    assert found["root"].read_only
    assert dataclasses.replace(found["root"], read_only=False) != found["root"]


@pytest.mark.parametrize(
    ("volume", "error", "image"),
    [
        ("root", ImageError("ErrImagePull", "no such image", "check the name"), "cirros"),
        ("root", VolumeError("cannot link"), ""),
        ("data", VolumeError("disk full", "make room"), ""),
    ],
)
async def test_a_failure_names_its_volume_and_the_remedy(tmp_path, prepared, volume, error, image):
    prepared.failing = {volume: error}
    disks = ({"name": "root", "disk": {}}, {"name": "data", "disk": {}})
    with pytest.raises(DriveError) as failed:
        await drives.prepare(context(tmp_path, *disks), Pulls())
    assert failed.value.volume == volume
    assert failed.value.image == image
    assert failed.value.reason == error.reason
    assert error.message in failed.value.message
    assert error.hint in failed.value.message
    assert sorted(prepared) == ["data", "root"]


@pytest.mark.parametrize(
    "error",
    [Forbidden("nobody may read it"), Unavailable("later"), binascii.Error("Incorrect padding")],
)
async def test_an_api_error_is_reported_for_its_volume(tmp_path, prepared, error):
    prepared.failing = {"data": error}
    with pytest.raises(DriveError) as failed:
        await drives.prepare(context(tmp_path, {"name": "data", "disk": {}}), Pulls())
    assert failed.value.volume == "data"
    assert failed.value.reason == "FailedMount"
    assert failed.value.message == f'MountVolume.SetUp failed for volume "data" : {error}'
