"""cloudInitNoCloud: what cloud-init finds at a machine's first boot."""

import base64
import json

import pycdlib
import pytest

from corral.api.kinds.domain import Firmware
from corral.api.kinds.volumes import CloudInitNoCloud, ObjectName, Volume
from corral.node.volumes import VolumeError, cloud_init, prepare


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


def seed(**fields):
    return Volume(name="init", cloud_init_no_cloud=CloudInitNoCloud(**fields))


async def test_a_seed_is_what_cloud_init_looks_for(context, vmi):
    vmi.spec.domain.firmware = Firmware(uuid="5d307ca9-b3ef-428c-8861-06e72d69f223")
    text = "#cloud-config\npassword: grüße\n"
    disk = await prepare(seed(user_data=text, network_data="version: 2"), context)
    assert (disk.format, disk.layers) == ("raw", ())
    label, files = read_iso(disk.path)
    assert label == "cidata"
    assert json.loads(files.pop("meta-data")) == {
        "instance-id": "5d307ca9-b3ef-428c-8861-06e72d69f223",
        "local-hostname": "web",
    }
    assert files == {"user-data": text.encode(), "network-config": b"version: 2"}
    assert disk.path.stat().st_mode & 0o777 == 0o600
    assert disk.path.stat().st_size % 512 == 0


async def test_the_kernel_of_the_host_knows_the_label(context, judge):
    disk = await prepare(seed(user_data="x"), context)
    assert judge.run("blkid", "-p", "-o", "value", "-s", "LABEL", disk.path) == b"cidata\n"


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


def test_the_host_name_is_the_first_part_of_the_machines(vmi):
    vmi.metadata.name = "web.one"
    assert json.loads(cloud_init.meta_data(vmi))["local-hostname"] == "web"
