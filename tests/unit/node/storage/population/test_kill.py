"""An import is killed before each of its file operations, and taken up by the next process."""

import asyncio
import shutil
import subprocess

import pytest

from corral.node.host.destinations import ANYWHERE
from corral.node.images.progress import silent
from corral.node.storage import Storage
from corral.node.storage.population import http_download
from corral.node.storage.population.content import make_disk, max_bytes
from corral.node.storage.population.partial_content import PartialContent

MiB = 1 << 20
CAPACITY = 4 * MiB
HANDLE = "pvc-1"


def work_on(directory, url):
    """What a filling does, without the API."""
    storage = Storage(directory)
    storage.sweep()
    if storage.find(HANDLE).populated:
        return
    part = PartialContent(storage.work_directory(HANDLE), max_bytes=max_bytes(CAPACITY))
    if not part.record.complete:
        http_download.fetch(
            http_download.Request(url=url, destinations=ANYWHERE),
            part,
            lambda *_: None,
            http_download.Stop(),
        )
    disk, format_ = asyncio.run(make_disk(part.path, CAPACITY, "the image", silent))
    storage.populate(HANDLE, disk, format_)


def seen(directory, tmp_path):
    """What a guest would see."""
    disk = Storage(directory).find(HANDLE).disk
    raw = tmp_path / "seen.raw"
    command = ("qemu-img", "convert", "-f", disk.format, "-O", "raw", disk.path, raw)
    subprocess.run(command, check=True)
    return raw.read_bytes()


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """A kill leaves what the kernel has; only a power cut would not, and disks are slow."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.parametrize(
    ("packing", "stride"), [("raw", 1), ("qcow2", 3), ("compressed qcow2", 7), ("xz", 7)]
)
def test_an_import_that_was_killed_is_taken_up_again(
    server, content, killed_at, tmp_path, packing, stride
):
    content = content[2 * MiB - (1 << 18) : 2 * MiB + (1 << 18)]  # letters, then zeros
    server.content = packed(content, packing, tmp_path)
    whole = content.ljust(CAPACITY, b"\0")
    number, was_killed = 0, True
    while was_killed:
        directory = tmp_path / f"storage-{number}"
        Storage(directory).provision(HANDLE, CAPACITY)
        was_killed = killed_at(number, work_on, directory, server.url)
        assert seen(directory, tmp_path) in (bytes(CAPACITY), whole), "nothing half-done is seen"
        work_on(directory, server.url)
        assert Storage(directory).find(HANDLE).populated
        assert not list((directory / "filling").iterdir())
        assert seen(directory, tmp_path) == whole
        shutil.rmtree(directory)
        number += stride
    assert number > 5


def packed(content, packing, tmp_path):
    raw = tmp_path / "disk.raw"
    raw.write_bytes(content)
    if packing == "raw":
        return content
    if packing == "xz":
        return subprocess.run(("xz", "-1", "-c", raw), check=True, capture_output=True).stdout
    target = tmp_path / "disk.qcow2"
    flags = ("-c",) if packing.startswith("compressed") else ()
    subprocess.run(("qemu-img", "convert", "-O", "qcow2", *flags, raw, target), check=True)
    return target.read_bytes()
