"""Bounding a process by control groups: which files say what, and in which order."""

import errno

import pytest
from tests.unit.node.limits.kernel import Group, Kernel

from corral.node.limits.cgroup_methods import (
    CpuCgroup1,
    CpuCgroup2,
    MemoryCgroup1,
    MemoryCgroup2,
    quota,
)
from corral.node.limits.cgroup_paths import MachineGroups
from corral.node.limits.cgroup_root import prepare_parent

UID = "b7e1"
PID = -4711


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def site(kernel):
    group = prepare_parent(Group(kernel, "run-1.scope", controllers=("cpu", "memory")))
    return MachineGroups(group, "corral-", find=kernel.find)


@pytest.mark.parametrize(
    ("nanos", "expected"),
    [
        (300_000_000, (30_000, 100_000)),
        (2_500_000_000, (250_000, 100_000)),
        (10_000_000, (1_000, 100_000)),
        (5_000_000, (1_000, 200_000)),
        (2_000_000, (1_600, 800_000)),
        (1, (1_000, 1_000_000)),
    ],
)
def test_a_cpu_limit_is_a_quota_per_period(nanos, expected):
    assert quota(nanos) == expected


def test_cgroup_v2_limits_both_in_one_cgroup(site, kernel):
    MemoryCgroup2(site).apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
    CpuCgroup2(site).apply(UID, PID, 300_000_000)
    group = site.group(UID)
    assert kernel.placed[PID] is group
    assert group.read("cpu.max") == "30000 100000"
    assert group.read("memory.max") == str(80 << 20)
    assert group.read("memory.oom.group") == "1"
    assert group.read("memory.swap.max") == "0"


def test_a_crash_between_any_writes_is_repaired_by_the_next_manager(kernel):
    def held(writes):
        """A guest's group when the manager is killed after so many writes, and comes again."""
        scope = Group(kernel, f"run-{writes}.scope", controllers=("cpu", "memory"))
        group = prepare_parent(scope).child("corral-b7e1")
        left = iter(range(writes))

        def write(setting, value):
            if next(left, None) is None:
                raise KeyboardInterrupt
            Group.write(group, setting, value)

        group.write = write
        scope.inside[group.name] = group
        try:
            bound(scope)
        except KeyboardInterrupt:
            del group.write
            bound(scope)
            return group, True
        return group, False

    def bound(scope):
        site = MachineGroups(scope, "corral-", find=kernel.find)
        site.make = site.group  # what the cut has left is still there
        MemoryCgroup2(site).apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
        CpuCgroup2(site).apply(UID, PID, 300_000_000)

    names = ("memory.max", "memory.oom.group", "memory.swap.max", "cpu.max")
    expected = [str(80 << 20), "1", "0", "30000 100000"]
    for writes in range(20):
        kernel.placed.pop(PID, None)
        group, cut = held(writes)
        assert kernel.placed[PID] is group
        assert [group.read(name) for name in names] == expected
        if not cut:
            break
    assert writes == 5


def test_a_start_after_a_failed_one_has_a_new_cgroup(site, kernel):
    memory = MemoryCgroup2(site)
    memory.apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
    del kernel.placed[PID]
    memory.apply(UID, PID - 1, 100 << 20, used=30 << 20, on_exceeded=lambda: None)
    assert site.group(UID).read("memory.max") == str(70 << 20)


def test_the_memory_of_a_running_guest_is_not_subtracted_again(site):
    memory = MemoryCgroup2(site)
    memory.apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
    charge(site, mebibytes=50)
    memory.apply(UID, PID, 100 << 20, used=70 << 20, on_exceeded=lambda: None)
    assert site.group(UID).read("memory.max") == str(80 << 20)


def charge(site, *, mebibytes):
    """Let a guest use so much memory that is charged to its group, by two counters."""
    half = (mebibytes << 20) // 2
    site.group(UID).values["memory.stat"] = f"anon {half}\nfile 9\nshmem {half}\n"


def test_a_changed_memory_limit_counts_what_another_group_is_charged_for(site):
    memory = MemoryCgroup2(site)
    memory.apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
    charge(site, mebibytes=50)
    memory.apply(UID, PID, 300 << 20, used=70 << 20, on_exceeded=lambda: None)
    assert site.group(UID).read("memory.max") == str(280 << 20)


def test_a_memory_limit_follows_a_cpu_limit_that_was_there_before(site):
    """Both are in one group: what the guest has used since is charged to it."""
    CpuCgroup2(site).apply(UID, PID, 300_000_000)
    charge(site, mebibytes=30)
    MemoryCgroup2(site).apply(UID, PID, 100 << 20, used=50 << 20, on_exceeded=lambda: None)
    assert site.group(UID).read("memory.max") == str(80 << 20)


def test_a_machine_stays_in_the_cgroup_of_an_earlier_manager(kernel, site):
    earlier = Group(kernel, "run-0.scope", controllers=("cpu", "memory"))
    CpuCgroup2(MachineGroups(prepare_parent(earlier), "corral-", find=kernel.find)).apply(
        UID, PID, 10**9
    )
    cpu = CpuCgroup2(site)
    cpu.apply(UID, PID, 10**9)
    assert kernel.placed[PID].above is earlier
    del kernel.placed[PID]
    cpu.remove(UID)
    assert earlier.children() == []


def test_the_cgroup_of_a_finished_machine_is_removed(site, kernel):
    cpu = CpuCgroup2(site)
    cpu.apply(UID, PID, 10**9)
    cpu.remove(UID)  # its process is about to go
    assert site.group(UID).made
    del kernel.placed[PID]
    cpu.remove(UID)
    cpu.remove(UID)
    assert not site.group(UID).made


def test_the_priority_of_a_machine_is_lowered_within_its_cgroup(site):
    cpu = CpuCgroup2(site)
    cpu.apply(UID, PID, 10**9)
    cpu.lower_priority(UID, True)
    assert site.group(UID).read("cpu.weight.nice") == "15"
    cpu.lower_priority(UID, False)
    assert site.group(UID).read("cpu.weight.nice") == "0"
    cpu.lower_priority("unheard-of", True)


class Files:
    """A group of version 1 that keeps what is written, in order."""

    name = "corral-b7e1"

    def __init__(self, refuses=""):
        self.written = []
        self.refuses = refuses

    def child(self, _name):
        return self

    def create(self): ...

    def remove(self): ...

    def write(self, setting, value):
        if setting == self.refuses:
            raise OSError(errno.EINVAL, "Invalid argument", setting)
        self.written.append((setting, value))


def site_1(group):
    return MachineGroups(group, "corral-", find=lambda _pid, _name: None)


def test_cgroup_v1_sets_limits_before_moving_the_process():
    files = Files()
    CpuCgroup1(site_1(files)).apply(UID, PID, 300_000_000)
    MemoryCgroup1(site_1(files)).apply(UID, PID, 100 << 20, used=20 << 20, on_exceeded=lambda: None)
    assert files.written == [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "30000"),
        ("cgroup.procs", "-4711"),
        ("memory.limit_in_bytes", str(80 << 20)),
        ("memory.memsw.limit_in_bytes", str(80 << 20)),
        ("cgroup.procs", "-4711"),
    ]


def test_a_cgroup_is_limited_by_its_parents():
    files = Files(refuses="cpu.cfs_quota_us")
    CpuCgroup1(site_1(files)).apply(UID, PID, 10**10)
    assert files.written[-1] == ("cgroup.procs", "-4711")


class Inside(Files):
    """A group of version 1 that the process is in already."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def read(self, setting):
        return {
            "memory.limit_in_bytes": f"{self.limit}\n",
            "memory.stat": f"cache 9\nrss {40 << 20}\nswap {10 << 20}\ntotal_rss 9\n",
        }[setting]


@pytest.mark.parametrize(("size", "order"), [(300, (1, 0)), (60, (0, 1))], ids=["more", "less"])
def test_cgroup_v1_changes_limits_where_the_process_is(size, order):
    """Memory alone never gets more than memory and swap together: the kernel would refuse it."""
    group = Inside(80 << 20)
    inside = MachineGroups(group, "corral-", find=lambda _pid, _name: group)
    CpuCgroup1(inside).apply(UID, PID, 600_000_000)
    MemoryCgroup1(inside).apply(UID, PID, size << 20, used=70 << 20, on_exceeded=lambda: None)
    settings = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    assert group.written == [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "60000"),
        *((settings[each], str((size - 20) << 20)) for each in order),
    ]
