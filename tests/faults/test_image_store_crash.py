"""The image store after kill -9 in the middle of anything: whole, and going on."""

import contextlib
import os
import random
import subprocess
import sys
import time

import pytest

from corral.node.images.store import ImageStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

# Imports two disks under one name and removes it, for ever, printing after each step what holds.
PROGRAM = """
import asyncio, itertools, pathlib, sys
from corral.node.images.store import ImageStore

async def main(store, one, two):
    for turn in itertools.count():
        await store.import_disk((one, two)[turn % 2], ["changing"])
        if turn % 5 == 4:
            await store.remove("changing")
        print(turn, flush=True)

paths = [pathlib.Path(each) for each in sys.argv[1:]]
asyncio.run(main(ImageStore(paths[0]), *paths[1:]))
"""


PERIODIC = [pytest.param(each, marks=pytest.mark.periodic) for each in range(4, 12)]


@pytest.mark.parametrize("seed", [*range(4), *PERIODIC])
async def test_a_kill_at_any_time_leaves_a_consistent_store(tmp_path, seed):
    chance = random.Random(seed)
    contents = {name: name.encode() * 512 * 300 for name in ("o", "t", "k")}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    pack(tmp_path / "t", tmp_path / "two")
    store = ImageStore(tmp_path / "images")
    await store.import_disk(tmp_path / "k", ["kept"])
    work_and_be_killed(chance, tmp_path / "images", tmp_path / "o", tmp_path / "two")
    for image in store.images():
        assert image.path.exists(), f"seed {seed}"
        assert image.digest == f"sha256:{sha256(image.path)}", f"seed {seed}"
    assert store.find("kept").path.read_bytes() == contents["k"]
    image = await store.import_disk(tmp_path / "two", ["changing"])
    assert store.find("changing") == image
    assert len(list((tmp_path / "images" / "disks").iterdir())) == 2
    left = [each.name for each in (tmp_path / "images" / "work").iterdir()]
    assert left == [".lock"], "what the killed process was making is gone"


def pack(raw, packed):
    command = ["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", raw, packed]
    subprocess.run(command, check=True)


def work_and_be_killed(chance, *paths):
    command = [sys.executable, "-c", PROGRAM, *paths]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.stdout.readline()  # it has begun
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.3))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        wait_for_heirs(process.pid)


def wait_for_heirs(group):
    """A conversion ends with its manager, but not in the same instant."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.005)


def sha256(path):
    output = subprocess.run(["sha256sum", path], check=True, capture_output=True).stdout
    return output.split()[0].decode()
