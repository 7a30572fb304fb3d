"""A full disk is said to be full, costs nothing else, and is forgiven when there is space again."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

# Runs with 4 MiB of disk space of its own in argv[1].
PROGRAM = """
import asyncio, os, pathlib, sys
import msgspec
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import ContainerDisk, EmptyDisk, Volume
from corral.node.images import ImageError
from corral.node.images.store import ImageStore
from corral.node.volumes import VolumeContext, VolumeError, prepare

async def nothing(name):
    return {}

async def main(folder, source):
    def context(name):
        document = {"metadata": {"name": name}, "spec": {"domain": {"devices": {}}}}
        return VolumeContext(
            vmi=msgspec.convert(document, VirtualMachineInstance), directory=folder / name,
            images=store, secret=nothing, config_map=nothing, credentials=nothing,
        )
    store = ImageStore(folder / "images")
    small, large = source / "small", source / "large"
    small.write_bytes(os.urandom(1 << 20))
    large.write_bytes(os.urandom(8 << 20))
    await store.import_disk(small, ["small"])
    for attempt in range(2):
        try:
            await store.import_disk(large, ["large"])
        except ImageError as error:
            print(error.message, "|", error.hint)
    print([image.reference for image in store.images()])
    filler = (folder / "filler").open("wb", buffering=0)
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        filler.close()
    volume = Volume(name="root", container_disk=ContainerDisk(image="small"))
    try:
        await prepare(volume, context("a"))
    except VolumeError as error:
        print(error.message)
    os.unlink(folder / "filler")
    print((await prepare(volume, context("a"))).format)

asyncio.run(main(*map(pathlib.Path, sys.argv[1:])))
"""


def test_a_full_disk(tmp_path):
    small, source = tmp_path / "small", tmp_path / "source"
    small.mkdir()
    source.mkdir()
    script = 'mount -t tmpfs -o size=4m none "$1" && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, small, sys.executable, PROGRAM, source], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second, images, volume, after = done.stdout.splitlines()
    assert first == second
    assert first.startswith(f"cannot import {source}/large: No space left on device | free some")
    assert images == "['docker.io/library/small:latest']"
    assert volume.startswith('MountVolume.SetUp failed for volume "root" : ')
    assert "No space left on device" in volume
    assert after == "qcow2"
