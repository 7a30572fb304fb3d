"""The images that a Node lists, and when it is written again."""

import asyncio
from pathlib import Path

from tests.unit.node.images.conftest import disk

from corral.aio import Background
from corral.node.images.image import Image
from corral.node.images.inventory import MAX_IMAGES, Inventory, container_images
from corral.node.images.store import ImageStore


def image(reference, digest, size=1, source="pull"):
    return Image(
        reference=reference,
        digest=digest,
        path=Path("/disk"),
        format="raw",
        size=size,
        virtual_size=size,
        source=source,
    )


def test_a_disk_is_listed_with_all_its_names_and_the_largest_first():
    images = [
        image("a:1", "sha256:1", 5),
        image("b:1", "sha256:2", 9, "import"),
        image("c:1", "sha256:1", 5),
        image("a:1", "sha256:1", 5),  # under another path in the container image
    ]
    assert container_images(images) == [
        {"names": ["b:1"], "sizeBytes": 9},
        {"names": ["a:1", "c:1"], "sizeBytes": 5},
    ]


def test_copies_are_left_to_their_origin():
    assert container_images([image("a:1", "sha256:1", source="copy")]) == []


def test_the_list_is_bounded():
    images = [image(f"a:{n}", f"sha256:{n}", n) for n in range(MAX_IMAGES + 5)]
    listed = container_images(images)
    assert len(listed) == MAX_IMAGES
    assert listed[0]["names"] == [f"a:{MAX_IMAGES + 4}"]


async def test_imports_and_removals_by_any_process_are_published(tmp_path):
    store, other = ImageStore(tmp_path / "images"), ImageStore(tmp_path / "images")
    source = tmp_path / "source.img"
    source.write_bytes(disk())
    published = asyncio.Queue()
    inventory = Inventory(store, lambda: published.put_nowait(inventory.listed()))
    async with Background() as tasks, asyncio.timeout(60):
        tasks.start(store.watch(), name="images")
        tasks.start(inventory.run(), name="listed images")
        await asyncio.sleep(0)
        await other.import_disk(source, ["lab/debian:12"])
        (listed,) = await published.get()
        assert listed["names"] == ["docker.io/lab/debian:12"]
        await other.remove("lab/debian:12")
        assert await published.get() == []
