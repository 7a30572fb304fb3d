"""Locks of disks on one host."""

import os

import pytest

from corral.node.host.open_disks import opened
from corral.node.storage import InUse


def test_a_disk_that_a_machine_writes_is_locked(storage):
    made = storage.provision("one", 1 << 20)
    descriptor = opened(made.disk.path, os.O_RDWR)
    with pytest.raises(InUse, match="a machine writes volume one"), storage.exclusive(made):
        pass
    os.close(descriptor)
    with storage.exclusive(made), pytest.raises(OSError, match="cloned or resized"):
        opened(made.disk.path, os.O_RDWR)


def test_a_machine_with_a_lease_takes_no_flock(storage):
    made = storage.provision("one", 1 << 20)
    descriptor = opened(made.disk.path, os.O_RDWR, leased=True)
    with storage.exclusive(made):
        os.close(descriptor)
