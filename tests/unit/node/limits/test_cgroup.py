"""Finding the group of a process in the file system."""

from pathlib import Path, PurePosixPath

import pytest

from corral.node.limits.cgroup import Directory, group_in, mounts

VERSION_1 = """\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/a /sys/fs/cgroup/mem\\040ory ro shared:7 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
22 1 8:1 / / rw - ext4 /dev/sda1 rw
"""
GROUPS = (
    "4:memory:/docker/a/b\n1:cpu,cpuacct:/user:1\n9:name=systemd:/x\n0::/user.slice/run-1.scope\n"
)


def test_the_mounted_hierarchies_are_read():
    cpu, memory, two = mounts(VERSION_1)
    assert cpu.point == Path("/sys/fs/cgroup/cpu")
    assert "cpu" in cpu.controllers
    assert (memory.point, memory.root) == (
        Path("/sys/fs/cgroup/mem ory"),
        PurePosixPath("/docker/a"),
    )
    assert not two.controllers


def test_a_cgroup_is_found_below_its_mount():
    cpu, memory, _ = mounts(VERSION_1)
    group = group_in(GROUPS, "memory")
    assert memory.directory(group) == Path("/sys/fs/cgroup/mem ory/b")
    assert cpu.directory(group_in(GROUPS, "cpu")) == Path("/sys/fs/cgroup/cpu/user:1")


def test_a_cgroup_outside_of_the_mount_is_missing():
    _, memory, _ = mounts(VERSION_1)
    assert memory.directory(PurePosixPath("/docker/other")) is None


def test_version_2_has_no_name():
    assert group_in(GROUPS, "") == PurePosixPath("/user.slice/run-1.scope")
    assert group_in("1:cpu:/\n", "") is None
    assert group_in(GROUPS, "pids") is None


def test_missing_settings_are_not_created(tmp_path):
    with pytest.raises(FileNotFoundError):
        Directory(tmp_path).write("cpu.max", "1 2")
    assert not list(tmp_path.iterdir())
