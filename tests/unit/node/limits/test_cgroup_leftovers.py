"""What is left of a machine in the kernel's groups, whose files are plain ones here."""

import pytest

from corral.node.limits.cgroup_leftovers import lift_limits, remove, was_oom_killed

TWO, ONE = "memory.events", "memory.oom_control"
KILLED = "under_oom 0\noom_kill 1\n"


def used(most, what="memory"):
    return {f"{what}.limit_in_bytes": "4096\n", f"{what}.max_usage_in_bytes": f"{most}\n"}


@pytest.mark.parametrize(
    ("files", "killed"),
    [
        ({}, False),
        ({"cpu.max": "30000 100000"}, False),
        ({TWO: "low 0\noom 0\noom_kill 0\n"}, False),
        ({TWO: "low 0\noom 3\noom_kill 1\n"}, True),
        # The host itself, or a group around, was out of memory.
        ({TWO: "low 0\noom 0\noom_kill 1\n"}, False),
        ({ONE: KILLED, **used(4096)}, True),
        ({ONE: KILLED, **used(100), **used(4096, "memory.memsw")}, True),
        ({ONE: KILLED, **used(100)}, False),
        ({ONE: "under_oom 0\noom_kill 0\n", **used(4096)}, False),
    ],
)
def test_an_oom_kill_in_the_own_cgroup_counts(tmp_path, files, killed):
    group = tmp_path / "group"
    group.mkdir()
    for name, text in files.items():
        (group / name).write_text(text)
    assert was_oom_killed([str(tmp_path / "gone"), str(group)]) is killed


def test_removing_missing_cgroups_is_no_error(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "busy" / "within").mkdir(parents=True)
    remove([str(tmp_path / name) for name in ("gone", "busy", "one")])
    assert [entry.name for entry in tmp_path.iterdir()] == ["busy"]


@pytest.mark.parametrize(("setting", "value"), [("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")])
def test_cpu_limits_are_lifted_for_killed_processes(tmp_path, setting, value):
    (tmp_path / setting).write_text("20")
    lift_limits([str(tmp_path / "gone"), str(tmp_path)])
    assert (tmp_path / setting).read_text().startswith(value)
    assert [entry.name for entry in tmp_path.iterdir()] == [setting]
