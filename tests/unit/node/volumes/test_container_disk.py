"""containerDisk: one image, many machines, each with an overlay that is its own."""

import pytest

from corral.api.kinds.vmi.volumes import ContainerDisk, Volume
from corral.node.images.error import ImageError
from corral.node.volumes import prepare


async def import_raw(context, tmp_path, name="demo"):
    source = tmp_path / "disk.raw"
    source.write_bytes(b"boot" * 128 * 2048)
    return await context.images.import_disk(source, [name])


async def test_a_container_disk_is_an_overlay_on_the_shared_image(context, tmp_path, judge):
    image = await import_raw(context, tmp_path)
    disk = await prepare(Volume(name="root", container_disk=ContainerDisk(image="demo")), context)
    assert (disk.volume, disk.format, disk.read_only) == ("root", "qcow2", False)
    (layer,) = disk.layers
    assert layer.path.samefile(image.path)
    assert layer.format == "raw"
    seen = judge.info(disk.path)
    assert seen["virtual-size"] == image.virtual_size
    assert (seen["full-backing-filename"], seen["backing-filename-format"]) == (
        str(layer.path),
        "raw",
    )
    assert judge.check(disk.path)["check-errors"] == 0
    judge.run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", disk.path, image.path)
    assert disk.path.stat().st_mode & 0o777 == 0o600


async def test_an_existing_overlay_is_never_recreated(context, tmp_path, judge):
    await import_raw(context, tmp_path)
    volume = Volume(name="root", container_disk=ContainerDisk(image="demo"))
    disk = await prepare(volume, context)
    judge.run("qemu-io", "-f", "qcow2", "-c", "write -P 7 0 4096", disk.path)
    before = disk.path.read_bytes()
    await context.images.remove("demo")  # nor does it need the store any more
    assert await prepare(volume, context) == disk
    assert disk.path.read_bytes() == before


@pytest.mark.parametrize("survives", ["nothing", "link", "partial"])
async def test_a_kill_between_two_steps_is_repaired(context, tmp_path, survives):
    await import_raw(context, tmp_path)
    volume = Volume(name="root", container_disk=ContainerDisk(image="demo"))
    whole = await prepare(volume, context)
    content = whole.path.read_bytes()
    whole.path.unlink()
    if survives == "nothing":
        whole.layers[0].path.unlink()
    if survives == "partial":
        (whole.path.parent / f".{whole.path.name}.partial").write_bytes(b"half" * 100_000)
    assert await prepare(volume, context) == whole
    assert whole.path.read_bytes() == content


async def test_an_unavailable_image_is_reported_with_the_reason(context):
    disk = ContainerDisk(image="demo", image_pull_policy="Never")
    with pytest.raises(ImageError, match="not present"):
        await prepare(Volume(name="root", container_disk=disk), context)
    with pytest.raises(ImageError) as caught:
        await prepare(Volume(name="root", container_disk=ContainerDisk(image="No")), context)
    assert caught.value.reason == "InvalidImageName"


async def test_a_missing_pull_secret_does_not_prevent_a_pull(context, tmp_path):
    await import_raw(context, tmp_path)
    source = ContainerDisk(image="demo", image_pull_secret="missing")
    assert await prepare(Volume(name="root", container_disk=source), context)
