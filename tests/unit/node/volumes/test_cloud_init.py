"""cloudInitNoCloud, cloudInitConfigDrive: what cloud-init finds at a machine's first boot."""

import base64
import json

import msgspec
import pytest

from corral.api.kinds.vmi.access import AccessCredential
from corral.api.kinds.vmi.domain import Firmware
from corral.api.kinds.vmi.volumes import CloudInitConfigDrive, CloudInitNoCloud, ObjectName, Volume
from corral.node.volumes import VolumeError, cloud_init, prepare


def seed(**fields):
    return Volume(name="init", cloud_init_no_cloud=CloudInitNoCloud(**fields))


async def test_a_seed_has_the_files_of_cloud_init(context, vmi, iso):
    vmi.spec.domain.firmware = Firmware(uuid="5d307ca9-b3ef-428c-8861-06e72d69f223")
    text = "#cloud-config\npassword: grüße\n"
    disk = await prepare(seed(user_data=text, network_data="version: 2"), context)
    assert (disk.format, disk.layers) == ("raw", ())
    files = iso(disk.path)
    assert files.label == "cidata"
    assert json.loads(files.pop("meta-data")) == {
        "instance-id": "5d307ca9-b3ef-428c-8861-06e72d69f223",
        "local-hostname": "web",
    }
    assert files == {"user-data": text.encode(), "network-config": b"version: 2"}
    assert disk.path.stat().st_mode & 0o777 == 0o600
    assert disk.path.stat().st_size % 512 == 0


async def test_the_label_of_a_seed_is_readable(context, judge):
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
async def test_user_data_of_every_source(context, iso, fields, user, network):
    files = iso((await prepare(seed(**fields), context)).path)
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
async def test_missing_user_data_is_reported(context, fields, message):
    with pytest.raises(VolumeError, match=message) as caught:
        await prepare(seed(**fields), context)
    assert caught.value.reason == "FailedMount"


async def test_a_seed_is_a_snapshot(context, iso):
    disk = await prepare(seed(user_data="first"), context)
    await prepare(seed(user_data="second"), context)
    assert iso(disk.path)["user-data"] == b"first"


def test_the_host_name_is_the_first_part_of_the_vmis_name(vmi):
    vmi.metadata.name = "web.one"
    assert json.loads(cloud_init.no_cloud_metadata(vmi, {}))["local-hostname"] == "web"


def config_drive(**fields):
    return Volume(name="drive", cloud_init_config_drive=CloudInitConfigDrive(**fields))


async def test_a_config_drive_has_the_layout_of_openstack(context, vmi, iso, judge):
    vmi.metadata.annotations["kubevirt.io/instancetype-name"] = "small"
    vmi.spec.domain.firmware = Firmware(uuid="5d307ca9-b3ef-428c-8861-06e72d69f223")
    volume = config_drive(user_data="#!/bin/sh", network_data_secret_ref=ObjectName(name="camel"))
    disk = await prepare(volume, context)
    files = iso(disk.path)
    assert json.loads(files.pop("openstack/latest/meta_data.json")) == {
        "instance_type": "small",
        "instance_id": "web.example.farm",
        "local_hostname": "web",
        "hostname": "web",
        "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223",
    }
    assert files == {
        "openstack/latest/user_data": b"#!/bin/sh",
        "openstack/latest/network_data.json": b"net",
    }
    assert judge.run("blkid", "-p", "-o", "value", "-s", "LABEL", disk.path) == b"config-2\n"


async def test_only_the_first_cloud_init_volume_counts(context, vmi, iso):
    vmi.spec.volumes = [config_drive(user_data="first"), seed(user_data="second")]
    for volume in vmi.spec.volumes:
        files = iso((await prepare(volume, context)).path)
        assert files.label == "config-2"
        assert files["openstack/latest/user_data"] == b"first"


def credential(way, secret="keys"):
    source = {"secret": {"secretName": secret}}
    document = {"sshPublicKey": {"source": source, "propagationMethod": {way: {}}}}
    return msgspec.convert(document, AccessCredential)


@pytest.mark.parametrize(
    ("volume", "way", "file", "field"),
    [
        (seed(user_data="x"), "noCloud", "meta-data", "public-keys"),
        (
            config_drive(user_data="x"),
            "configDrive",
            "openstack/latest/meta_data.json",
            "public_keys",
        ),
    ],
)
async def test_keys_of_access_credentials_are_included(context, vmi, iso, volume, way, file, field):
    other = "configDrive" if way == "noCloud" else "noCloud"
    vmi.spec.access_credentials = [credential(way), credential(other, "gone")]
    facts = json.loads(iso((await prepare(volume, context)).path)[file])
    assert facts[field] == {"0": "ssh-ed25519 AAA one", "1": "ssh-rsa BBB two"}


async def test_missing_keys_delay_the_start(context, vmi):
    vmi.spec.access_credentials = [credential("noCloud", "gone")]
    with pytest.raises(VolumeError, match='secret "gone" not found'):
        await prepare(seed(user_data="x"), context)
