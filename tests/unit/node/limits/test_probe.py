"""Which ways to bound machines are found to work, on hosts of many kinds."""

import errno
import os
import subprocess
import sys

import pytest
from tests.unit.node.limits.kernel import Group, Kernel

from corral.node.limits.cgroup_root import LEAF, Unusable, prepare_parent
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.memory_watch import ResidentSet
from corral.node.limits.probe import Hierarchies, find_limiters, group_prefix

MINE = "corral-12345678-"


def delegated(*controllers, processes=(-1, -2), **rules):
    """A group that systemd has delegated, with processes in it."""
    kernel = Kernel(**rules)
    group = Group(kernel, "run-1.scope", controllers=controllers)
    kernel.placed |= dict.fromkeys(processes, group)
    return group


def ways(v2=None, v1=None, **more):
    groups = v1 or {}
    find = (v2.kernel if v2 is not None else Kernel()).find
    there = Hierarchies(v2=v2, v1=groups.get, find=lambda _controller: find)
    return find_limiters(MINE, there, **more)


def test_a_delegated_cgroup_limits_both():
    group = delegated("cpu", "memory", "pids")
    found = ways(group)
    assert found.description == "cpu and memory by cgroup v2"
    assert found.reason == "a test process was bounded"
    assert group.switched == {"cpu", "memory"}
    assert group.child(LEAF).processes == [-1, -2]
    assert group.children() == [LEAF]


def test_controllers_are_enabled_in_a_cgroup_without_processes():
    group = delegated("cpu", "memory", processes=())
    prepare_parent(group)
    assert group.children() == []


def test_a_second_manager_has_its_own_cgroups():
    group = delegated("cpu", "memory")
    prepare_parent(group)
    assert prepare_parent(group.child(LEAF)) is group


def test_memory_alone_can_be_delegated():
    found = ways(delegated("memory", "pids"))
    assert found.description == "cpu by stopping and continuing, memory by cgroup v2"
    assert "cgroup v2: No such file or directory (cpu.max)" in found.reason
    assert isinstance(found.cpu, DutyCycle)


def test_a_hierarchy_without_controllers_is_not_used():
    found = ways(delegated("hugetlb"))
    assert isinstance(found.cpu, DutyCycle)
    assert isinstance(found.memory, ResidentSet)
    assert "neither the cpu nor the memory controller" in found.reason


def test_a_host_without_cgroups_uses_other_methods():
    found = ways()
    assert found.description == "cpu by stopping and continuing, memory by sampling resident memory"
    assert "not mounted" in found.reason


def test_missing_write_access_is_reported_with_the_remedy():
    found = ways(delegated("cpu", "memory", writable=False))
    assert isinstance(found.cpu, DutyCycle)
    assert "Permission denied" in found.reason
    assert "corral up --systemd" in found.reason


@pytest.mark.parametrize("user", [0, 1000])
def test_cgroups_of_systemd_are_not_changed(monkeypatch, tmp_path, user):
    """As a user's terminal is, which that user could write to."""
    monkeypatch.setattr("corral.node.limits.cgroup_root._SYSTEMD", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    group = delegated("cpu", "memory", is_delegated=False)
    with pytest.raises(Unusable, match="not delegated"):
        prepare_parent(group)
    assert group.processes == [-1, -2]
    assert group.children() == []


def test_processes_of_others_are_not_moved(monkeypatch, tmp_path):
    monkeypatch.setattr("corral.node.limits.cgroup_root._SYSTEMD", tmp_path / "nowhere")
    monkeypatch.setattr(os, "getsid", lambda pid: pid or os.getpid())
    with subprocess.Popen(["sleep", "60"]) as ours:
        mine = delegated("cpu", "memory", is_delegated=False, processes=(os.getpid(), ours.pid))
        prepare_parent(mine)
        assert mine.child(LEAF).processes == [os.getpid(), ours.pid]
        ours.kill()
    for other in (1, 0):
        shared = delegated("cpu", "memory", is_delegated=False, processes=(os.getpid(), other))
        with pytest.raises(Unusable, match="not delegated"):
            prepare_parent(shared)
        assert shared.children() == []


def test_processes_started_during_the_move_are_moved():
    group = delegated("cpu", "memory")
    leaf, born = group.child(LEAF), iter((-3, -4))

    def write(setting, value):
        Group.write(leaf, setting, value)
        if (child := next(born, None)) is not None:
            group.kernel.placed[child] = group

    leaf.write = write
    group.inside[LEAF] = leaf
    prepare_parent(group)
    assert sorted(leaf.processes) == [-4, -3, -2, -1]
    assert group.switched == {"cpu", "memory"}


def test_processes_are_moved_back_if_controllers_cannot_be_enabled():
    group = delegated("cpu", "memory")
    write = group.write

    def stubborn(setting, value):
        if setting == "cgroup.subtree_control":
            raise OSError(errno.EBUSY, "Device or resource busy")
        write(setting, value)

    group.write = stubborn
    leaf = group.child(LEAF)
    leaf.create()
    group.kernel.placed[-9] = leaf  # another manager
    with pytest.raises(Unusable):
        prepare_parent(group)
    assert group.processes == [-1, -2]
    assert leaf.processes == [-9]


def test_only_leftover_cgroups_of_an_earlier_manager_are_removed():
    group = delegated("cpu", "memory", processes=())
    prepare_parent(group)
    for name in (f"{MINE}empty", f"{MINE}lives", "corral-87654321-empty", "user.slice"):
        group.child(name).create()
    group.child(f"{MINE}lives").write("cgroup.procs", "-77")
    group.child(f"{MINE}known").create()
    ways(group, existing={"known"})
    rest = {f"{MINE}lives", f"{MINE}known", "corral-87654321-empty", "user.slice"}
    assert set(group.children()) == rest


def test_each_data_directory_has_its_own_cgroups(tmp_path):
    assert group_prefix(tmp_path / "a") != group_prefix(tmp_path / "b")
    assert group_prefix(tmp_path / "a") == group_prefix(tmp_path / "b" / ".." / "a")


def test_the_probe_finds_methods_on_this_host_and_leaves_nothing(tmp_path):
    script = (
        "import sys; from pathlib import Path; from corral.node.limits.probe import *;"
        "print(find_limiters(group_prefix(Path(sys.argv[1]))).description)"
    )
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    able = subprocess.run([*ordinary, "true"], check=False, capture_output=True).returncode == 0
    for user in ([], ordinary) if able else ([],):  # not every host lets users have namespaces
        command = [*user, sys.executable, "-c", script, str(tmp_path)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert said.startswith("cpu ")
    groups = subprocess.run(
        ["find", "/sys/fs/cgroup", "-name", f"{group_prefix(tmp_path)}*"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert not groups.stdout


def test_a_cgroup_that_loses_its_process_is_not_used():
    group = delegated("cpu", "memory", processes=())
    group.kernel.find = lambda _pid, _name: None
    found = ways(group)
    assert isinstance(found.cpu, DutyCycle)
    assert "is not found there" in found.reason
