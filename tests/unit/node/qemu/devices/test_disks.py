"""Tests of the cache and block size options of disks."""

from pathlib import Path

import msgspec
import pytest

from corral.api.kinds.vmi.disks import Disk
from corral.node import disk_cache
from corral.node.hypervisor import Drive
from corral.node.qemu.devices.disks import device_cache, file_cache


def disk(**fields):
    return msgspec.convert({"name": "data", **fields}, Disk)


def drive(**fields):
    kept = {"volume": "data", "path": Path("x"), "format": "raw", "ephemeral": False}
    return Drive(**{**kept, "direct": True, **fields})


@pytest.mark.parametrize(
    ("fields", "direct", "options", "device"),
    [
        ({}, True, {"direct": True}, {}),
        ({}, False, {}, {"write-cache": "off"}),
        ({"cache": "none"}, True, {"direct": True}, {}),
        ({"cache": "writeback"}, True, {}, {}),
        ({"cache": "writethrough"}, True, {}, {"write-cache": "off"}),
        ({"cache": "directsync"}, True, {"direct": True}, {"write-cache": "off"}),
        ({"cache": "writeback", "shareable": True}, True, {"direct": True}, {"share-rw": True}),
    ],
)
def test_persistent_disks_are_flushed_in_every_cache_mode(fields, direct, options, device):
    spec, behind = disk(**fields), drive(direct=direct)
    assert file_cache(spec, behind) == options
    assert device_cache(spec, behind) == device
    assert disk_cache.fault(spec, behind) == ""


def test_ephemeral_disks_are_not_flushed():
    assert file_cache(disk(), drive(ephemeral=True)) == {"no-flush": True}


@pytest.mark.parametrize(
    ("block_size", "options"),
    [
        ({"custom": {"logical": 512, "physical": 4096}}, (512, 4096)),
        ({"matchVolume": {}}, (4096, 4096)),
        ({"matchVolume": {"enabled": False}}, (None, None)),
    ],
)
def test_block_sizes_are_those_of_the_spec(block_size, options):
    properties = device_cache(disk(blockSize=block_size), drive())
    assert (properties.get("logical_block_size"), properties.get("physical_block_size")) == options


def test_a_disk_on_sata_keeps_its_logical_blocks():
    spec = disk(disk={"bus": "sata"}, blockSize={"matchVolume": {"enabled": True}})
    assert device_cache(spec, drive()) == {"physical_block_size": 4096}


def test_a_cdrom_has_no_write_cache():
    spec = disk(cdrom={"bus": "sata"}, cache="writethrough")
    assert device_cache(spec, drive(read_only=True)) == {}
