"""Room on a nearly full disk: which images go."""

import os
import time

import pytest

from corral.node.host.destinations import ANYWHERE
from corral.node.images.garbage_collection import MIN_AGE_SECONDS, collect
from corral.node.images.store import ImageStore


@pytest.fixture
def store(tmp_path, limits):
    return ImageStore(tmp_path / "images", destinations=ANYWHERE, limits=limits)


def later():
    return time.time() + MIN_AGE_SECONDS + 10


async def pulled(store, registry, shapes, name, fill):
    disk = shapes.disk(fill=fill)
    return await store.ensure(
        registry.add(name, shapes.tar({"disk/a.img": disk})), policy="IfNotPresent"
    )


def left(store):
    return {each.reference.rpartition("/")[2] for each in store.images()}


async def test_only_unused_images_of_registries_are_collected(store, registry, shapes, tmp_path):
    await pulled(store, registry, shapes, "lab/free", b"a")
    used = await pulled(store, registry, shapes, "lab/used", b"b")
    os.link(used.path, tmp_path / "machine")
    disk = tmp_path / "disk"
    disk.write_bytes(shapes.disk(fill=b"c"))
    await store.import_disk(disk, ["lab/mine:1"])
    await collect(store, lambda: True, clock=later)
    assert left(store) == {"used:latest", "mine:1"}


async def test_the_least_recently_used_images_are_collected_until_enough_is_free(
    store, registry, shapes, tmp_path
):
    first = await pulled(store, registry, shapes, "lab/first", b"a")
    second = await pulled(store, registry, shapes, "lab/second", b"b")
    while first.path.stat().st_ctime_ns <= second.path.stat().st_ctime_ns:
        link = tmp_path / "machine"
        os.link(first.path, link)
        link.unlink()  # its last machine has gone after the other one was pulled
    short = iter([True, False])
    assert len(await collect(store, lambda: next(short), clock=later)) == 1
    assert left(store) == {"first:latest"}


async def test_recently_pulled_images_are_not_collected(store, registry, shapes):
    await pulled(store, registry, shapes, "lab/new", b"a")
    assert await collect(store, lambda: True) == []
    assert left(store) == {"new:latest"}
