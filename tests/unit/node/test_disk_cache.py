"""Which cache mode a disk has, and which it cannot have."""

import pytest
from tests.unit.node.qemu.devices.test_disks import disk, drive

from corral.node import disk_cache


@pytest.mark.parametrize(
    ("fields", "behind", "why"),
    [
        ({"cache": "none"}, {"direct": False}, "does not support direct I/O"),
        ({"io": "native", "cache": "writeback"}, {}, "needs cache none"),
        ({"io": "native"}, {"direct": False}, "its cache mode is writethrough"),
        ({"shareable": True}, {"format": "qcow2"}, "ReadWriteMany"),
    ],
)
def test_unsupported_cache_modes_are_reported(fields, behind, why):
    assert why in disk_cache.fault(disk(**fields), drive(**behind))


@pytest.mark.parametrize(
    ("fields", "behind", "mode"),
    [
        ({}, {}, "none"),
        ({}, {"direct": False}, "writethrough"),
        ({"cache": "writeback"}, {}, "writeback"),
        ({"cache": "writeback", "shareable": True}, {}, "none"),
        ({}, {"ephemeral": True}, ""),
    ],
)
def test_persistent_disks_have_the_safest_mode_by_default(fields, behind, mode):
    assert disk_cache.mode(disk(**fields), drive(**behind)) == mode
