"""Files of sources: what is copied from another host, and what this one has already."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest

from corral.node.hypervisor import GuestError
from corral.node.images.limits import Limits
from corral.node.machine.migration.source_files import (
    FileCopies,
    SourceFile,
    SourceFiles,
    files_of,
    link,
    listed,
)


class Source:
    """The host of a source, with files by name."""

    def __init__(self, **files):
        self.files = {name.replace("_", "."): content for name, content in files.items()}
        self.sizes = {}
        self.digests = {}
        self.sent = []
        self.status = 200

    def listed(self):
        return SourceFiles(
            [
                SourceFile(name, self.sizes.get(name, len(content)), self.digests.get(name, ""))
                for name, content in self.files.items()
            ]
        )

    @asynccontextmanager
    async def download(self, _node, query):
        content = msgspec.json.encode(self.listed())
        if "file" in query:
            self.sent.append(query["file"])
            content = self.files[query["file"]]

        async def parts():
            for start in range(0, len(content), 1000):
                yield content[start : start + 1000]

        yield self.status, parts()


LIMITS = Limits()
QUERY = {"migration": "m", "vmi": "u"}


VOLUMES = [SimpleNamespace(name=name) for name in ("root", "seed")]
VMI = SimpleNamespace(spec=SimpleNamespace(volumes=VOLUMES))


async def copy(source, folder, images=(), limits=LIMITS):
    await FileCopies(source, lambda: images, limits).copy("one", QUERY, VMI, folder)


async def test_files_are_copied_to_the_byte(tmp_path):
    source = Source(root_image_raw=bytes(range(256)) * 100, seed_iso=b"seed")
    await copy(source, tmp_path / "volumes")
    copied = {each.name: each.read_bytes() for each in (tmp_path / "volumes").iterdir()}
    assert copied == source.files
    await copy(source, tmp_path / "volumes")
    assert len(source.sent) == 2, "what is there is not sent again"


async def test_an_image_of_this_host_is_not_copied(tmp_path):
    source = Source(root_image_raw=b"layer")
    source.digests["root.image.raw"] = "sha256:1"
    image = tmp_path / "image"
    image.write_bytes(b"layer")
    await copy(source, tmp_path / "volumes", [SimpleNamespace(digest="sha256:1", path=image)])
    assert (tmp_path / "volumes/root.image.raw").samefile(image)
    assert source.sent == []


@pytest.mark.parametrize("size", [3, 9])
async def test_a_file_of_another_size_is_an_error(tmp_path, size):
    source = Source(seed_iso=b"seeds")
    source.sizes["seed.iso"] = size
    with pytest.raises(GuestError, match=r"seed\.iso whole"):
        await copy(source, tmp_path)
    assert not (tmp_path / "seed.iso").exists()


@pytest.mark.parametrize("name", ["../machine.json", "root.qcow2", "/etc/x.iso", "a/b.iso"])
async def test_a_name_of_another_kind_is_an_error(tmp_path, name):
    source = Source()
    source.files[name] = b"x"
    with pytest.raises(GuestError, match="node one sends a file of another kind"):
        await copy(source, tmp_path / "volumes")
    assert source.sent == []


async def test_a_refusal_is_the_error(tmp_path):
    source = Source(seed_iso=b"x")
    source.status = 403
    with pytest.raises(GuestError, match="node one does not send its files: "):
        await copy(source, tmp_path)


def test_files_are_listed_with_the_digests_of_images(tmp_path):
    volumes, image = tmp_path / "volumes", tmp_path / "image"
    volumes.mkdir()
    image.write_text("layer")
    (volumes / "root.image.raw").hardlink_to(image)
    (volumes / "seed.iso").write_text("seed")
    (volumes / "root.qcow2").write_text("overlay")
    removed = SimpleNamespace(digest="sha256:2", path=tmp_path / "removed")
    found = listed(tmp_path, lambda: [removed, SimpleNamespace(digest="sha256:1", path=image)])
    assert found.files == [
        SourceFile("root.image.raw", 5, "sha256:1"),
        SourceFile("seed.iso", 4),
    ]
    assert [each.name for each in files_of(tmp_path)] == ["root.image.raw", "seed.iso"]


def test_layers_are_linked_and_disks_with_files_copied_on_one_host(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "target"
    (source / "volumes").mkdir(parents=True)
    layer, seed = source / "volumes/root.image.raw", source / "volumes/seed.iso"
    layer.write_text("layer")
    seed.write_text("seed")
    seed.chmod(0o600)
    link(source, folder)
    assert (folder / layer.name).samefile(layer)
    assert not (folder / seed.name).samefile(seed), "a QEMU would keep another one from it"
    assert (folder / seed.name).read_text() == "seed"
    assert (folder / seed.name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "names", [["other.iso"], ["root.image.raw", "root.image.qcow2"], ["seed.iso", "seed.iso"]]
)
async def test_a_file_of_no_volume_is_an_error(tmp_path, names):
    source = Source()
    files = SourceFiles([SourceFile(name, 1) for name in names])
    source.listed = lambda: files
    with pytest.raises(GuestError, match=rf"node one sends '{names[-1]}', of no volume"):
        await copy(source, tmp_path / "volumes")
    assert source.sent == []


@pytest.mark.parametrize(("name", "size"), [("root.image.raw", 1 << 50), ("seed.iso", 1 << 30)])
async def test_a_file_that_is_too_large_is_not_requested(tmp_path, name, size):
    source = Source()
    source.files[name], source.sizes[name] = b"x", size
    with pytest.raises(GuestError, match=f"node one sends a {name} of {size} bytes: too large"):
        await copy(source, tmp_path / "volumes")
    assert source.sent == []


async def test_zeros_occupy_nothing(tmp_path):
    content = bytes(4 << 20) + b"end" + bytes(1 << 20)
    await copy(Source(root_image_raw=content), tmp_path, limits=Limits(disk_bytes=1 << 17))
    copied = tmp_path / "root.image.raw"
    assert copied.read_bytes() == content
    assert copied.stat().st_blocks * 512 <= 1 << 17


async def test_an_image_occupies_no_more_than_one_from_a_registry(tmp_path):
    source = Source(root_image_raw=b"x" * (3 << 20))
    with pytest.raises(GuestError, match=r"root\.image\.raw occupies more than 1048576 bytes"):
        await copy(source, tmp_path, limits=Limits(disk_bytes=1 << 20))
    assert not (tmp_path / "root.image.raw").exists()


async def test_a_copy_is_readable_by_its_owner_alone(tmp_path):
    """A Secret's disk may have passwords."""
    await copy(Source(seed_iso=b"password"), tmp_path)
    assert (tmp_path / "seed.iso").stat().st_mode & 0o777 == 0o600
