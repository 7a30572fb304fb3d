"""Volumes become disks, once, however often and from wherever they are asked for."""

import base64
import json
import subprocess

import msgspec
import pycdlib
import pytest

from corral.api.errors import NotFound
from corral.api.kinds.domain import Firmware
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.api.kinds.volumes import (
    CloudInitNoCloud,
    ContainerDisk,
    EmptyDisk,
    HostDisk,
    ObjectName,
    Volume,
)
from corral.node.images.error import ImageError
from corral.node.images.store import ImageStore
from corral.node.volumes import SOURCES, VolumeContext, VolumeError, cloud_init, prepare

SECRETS = {
    "login": {"userdata": b"#cloud-config\n"},
    "camel": {"userData": b"camel", "networkData": b"net"},
    "other": {"x": b""},
}


async def secret(name):
    try:
        return SECRETS[name]
    except KeyError:
        raise NotFound(f'secrets "{name}" not found') from None


@pytest.fixture
def vmi():
    document = {
        "metadata": {"name": "web.example", "namespace": "farm", "uid": "u-1"},
        "spec": {"domain": {"devices": {}}},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def context(tmp_path, vmi):
    return VolumeContext(
        vmi=vmi,
        directory=tmp_path / "machine",
        images=ImageStore(tmp_path / "images"),
        secret=secret,
        config_map=secret,
        credentials=secret,
    )


def read_iso(path):
    image = pycdlib.PyCdlib()
    image.open(str(path))
    names = [
        each.file_identifier().decode("utf-16-be") for each in image.list_children(joliet_path="/")
    ][2:]
    rock = [each.rock_ridge.name().decode() for each in image.list_children(iso_path="/")][2:]
    assert sorted(names) == sorted(rock)
    label = image.pvd.volume_identifier.decode().strip()
    with_content = {}
    for name in names:
        with image.open_file_from_iso(rr_path=f"/{name}") as file:
            with_content[name] = file.read()
    image.close()
    return label, with_content


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


def check(path):
    return json.loads(run("qemu-img", "check", "--output=json", "-f", "qcow2", path))


def info(path):
    return json.loads(run("qemu-img", "info", "--output=json", path))


async def import_raw(context, tmp_path, name="demo"):
    source = tmp_path / "disk.raw"
    source.write_bytes(b"boot" * 128 * 2048)
    return await context.images.import_disk(source, [name])


# --------------------------------------------------------------- containerDisk


async def test_a_container_disk_is_an_overlay_on_the_shared_image(context, tmp_path):
    image = await import_raw(context, tmp_path)
    disk = await prepare(Volume(name="root", container_disk=ContainerDisk(image="demo")), context)
    assert (disk.volume, disk.format, disk.read_only) == ("root", "qcow2", False)
    assert disk.backing.samefile(image.path)
    assert disk.backing_format == "raw"
    seen = info(disk.path)
    assert seen["virtual-size"] == image.virtual_size
    assert (seen["full-backing-filename"], seen["backing-filename-format"]) == (
        str(disk.backing),
        "raw",
    )
    assert check(disk.path)["check-errors"] == 0
    run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", disk.path, image.path)
    assert disk.path.stat().st_mode & 0o777 == 0o600


async def test_what_a_machine_has_written_is_never_made_anew(context, tmp_path):
    await import_raw(context, tmp_path)
    volume = Volume(name="root", container_disk=ContainerDisk(image="demo"))
    disk = await prepare(volume, context)
    run("qemu-io", "-f", "qcow2", "-c", "write -P 7 0 4096", disk.path)
    before = disk.path.read_bytes()
    await context.images.remove("demo")  # nor does it need the store any more
    assert await prepare(volume, context) == disk
    assert disk.path.read_bytes() == before


@pytest.mark.parametrize("survives", ["nothing", "link", "partial"])
async def test_a_kill_between_two_steps_is_mended(context, tmp_path, survives):
    await import_raw(context, tmp_path)
    volume = Volume(name="root", container_disk=ContainerDisk(image="demo"))
    whole = await prepare(volume, context)
    content = whole.path.read_bytes()
    whole.path.unlink()
    if survives == "nothing":
        whole.backing.unlink()
    if survives == "partial":
        (whole.path.parent / f".{whole.path.name}.partial").write_bytes(b"half" * 100_000)
    assert await prepare(volume, context) == whole
    assert whole.path.read_bytes() == content


async def test_an_image_that_cannot_be_had_says_why(context):
    disk = ContainerDisk(image="demo", image_pull_policy="Never")
    with pytest.raises(ImageError, match="not present"):
        await prepare(Volume(name="root", container_disk=disk), context)
    with pytest.raises(ImageError) as caught:
        await prepare(Volume(name="root", container_disk=ContainerDisk(image="No")), context)
    assert caught.value.reason == "InvalidImageName"


async def test_a_missing_pull_secret_is_no_reason_not_to_try(context, tmp_path):
    await import_raw(context, tmp_path)
    source = ContainerDisk(image="demo", image_pull_secret="missing")
    assert await prepare(Volume(name="root", container_disk=source), context)


# ------------------------------------------------------------------- emptyDisk


@pytest.mark.parametrize(
    ("capacity", "size"),
    [("2Gi", 2 << 30), ("1500k", 1 << 20), ("3M", 2 << 20), ("600Gi", 600 << 30), ("1Pi", 1 << 50)],
)
async def test_an_empty_disk_is_sparse_and_of_whole_mebibytes(context, capacity, size):
    volume = Volume(name="scratch", empty_disk=EmptyDisk(capacity=capacity))
    disk = await prepare(volume, context)
    assert info(disk.path)["virtual-size"] == size
    assert check(disk.path)["check-errors"] == 0
    assert disk.path.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("capacity", ["0", "1k", "2Pi", "-1Gi", "9999999E"])
async def test_an_empty_disk_of_impossible_size(context, capacity):
    with pytest.raises(VolumeError, match="is not between 1Mi and 1Pi") as caught:
        await prepare(Volume(name="scratch", empty_disk=EmptyDisk(capacity=capacity)), context)
    assert caught.value.reason == "FailedMount"


# ------------------------------------------------------------ cloudInitNoCloud


def seed(**fields):
    return Volume(name="init", cloud_init_no_cloud=CloudInitNoCloud(**fields))


async def test_a_seed_is_what_cloud_init_looks_for(context, vmi):
    vmi.spec.domain.firmware = Firmware(uuid="5d307ca9-b3ef-428c-8861-06e72d69f223")
    text = "#cloud-config\npassword: grüße\n"
    disk = await prepare(seed(user_data=text, network_data="version: 2"), context)
    assert (disk.format, disk.backing) == ("raw", None)
    label, files = read_iso(disk.path)
    assert label == "cidata"
    assert json.loads(files.pop("meta-data")) == {
        "instance-id": "5d307ca9-b3ef-428c-8861-06e72d69f223",
        "local-hostname": "web",
    }
    assert files == {"user-data": text.encode(), "network-config": b"version: 2"}
    assert disk.path.stat().st_mode & 0o777 == 0o600
    assert disk.path.stat().st_size % 512 == 0


async def test_the_kernel_of_the_host_knows_the_label(context):
    disk = await prepare(seed(user_data="x"), context)
    assert run("blkid", "-p", "-o", "value", "-s", "LABEL", disk.path) == b"cidata\n"


@pytest.mark.parametrize(
    ("fields", "user", "network"),
    [
        ({"user_data_base64": base64.b64encode(b"\0bin").decode()}, b"\0bin", None),
        ({"secret_ref": ObjectName(name="login")}, b"#cloud-config\n", None),
        ({"secret_ref": ObjectName(name="camel")}, b"camel", None),
        ({"network_data_secret_ref": ObjectName(name="camel")}, b"", b"net"),
        ({"network_data_base64": base64.b64encode(b"n").decode()}, b"", b"n"),
    ],
)
async def test_data_from_every_place(context, fields, user, network):
    _, files = read_iso((await prepare(seed(**fields), context)).path)
    assert files["user-data"] == user
    assert files.get("network-config") == network


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"secret_ref": ObjectName(name="gone")}, 'volume "init" : secret "gone" not found'),
        ({"secret_ref": ObjectName(name="other")}, "none of the keys userdata, userData"),
        ({"user_data_base64": "!"}, "userDataBase64 is not base64"),
        ({}, "neither user data nor network data"),
    ],
)
async def test_data_that_cannot_be_had(context, fields, message):
    with pytest.raises(VolumeError, match=message) as caught:
        await prepare(seed(**fields), context)
    assert caught.value.reason == "FailedMount"


async def test_a_seed_is_a_snapshot(context):
    disk = await prepare(seed(user_data="first"), context)
    await prepare(seed(user_data="second"), context)
    assert read_iso(disk.path)[1]["user-data"] == b"first"


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [("web", "", "web"), ("web", "db", "db"), ("a.b.c", "", "a"), (f"{'x' * 62}-y", "", "x" * 62)],
)
def test_the_hostname(vmi, name, own, expected):
    vmi.metadata.name, vmi.spec.hostname = name, own
    assert cloud_init.hostname(vmi) == expected


# -------------------------------------------------------------------- dispatch


def test_every_source_is_a_field_of_volume():
    assert SOURCES.keys() <= set(Volume.__struct_fields__)


async def test_a_source_without_a_module_is_refused(context):
    source = HostDisk(path="/etc/shadow", type="Disk")
    with pytest.raises(VolumeError, match="not supported"):
        await prepare(Volume(name="host", host_disk=source), context)


async def test_a_name_cannot_lead_out_of_the_directory(context):
    with pytest.raises(VolumeError, match="not a DNS label"):
        await prepare(Volume(name="../up", empty_disk=EmptyDisk(capacity="1Gi")), context)


async def test_a_directory_that_cannot_be_written(context):
    context.directory.write_bytes(b"a file")
    with pytest.raises(VolumeError, match="Not a directory"):
        await prepare(Volume(name="scratch", empty_disk=EmptyDisk(capacity="1Gi")), context)
