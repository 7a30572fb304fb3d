"""A manager that dies, comes back as another, or cannot come at all."""

import signal
import subprocess
import sys

import pytest
from tests.cluster import EXAMPLES, outside, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

HOLLOW = ("--machine", "hollow")


def ready(user, replicas):
    status = user.get("vmirs", "testreplicaset").get("status", {})
    counts = status.get("replicas", 0), status.get("readyReplicas", 0)
    return counts == (replicas, replicas) and len(user.items("vmi")) == replicas


def uids(user):
    return {vmi["metadata"]["uid"] for vmi in user.items("vmi")}


def test_machines_of_a_removed_node_are_still_managed(tmp_path):
    with outside(*HOLLOW, "--nodes", "2", directory=tmp_path) as user:
        user.kubectl("create", "-f", str(EXAMPLES / "testreplicaset.yaml"))
        until("three machines are ready", lambda: ready(user, 3))
        before = uids(user)
        user.kill_manager()
        with outside(*HOLLOW, directory=tmp_path) as again:
            until("the machines are taken over", lambda: ready(again, 3))
            assert uids(again) == before
            nodes = {
                node["metadata"]["name"]: node.get("spec", {}) for node in again.items("nodes")
            }
            assert len(nodes) == 3
            assert sum(spec.get("unschedulable", False) for spec in nodes.values()) == 2
            again.kubectl("scale", "vmirs", "testreplicaset", "--replicas", "0")
            until("all are gone", lambda: not again.items("vmi"))
            again.kill_manager()
            with outside(*HOLLOW, directory=tmp_path) as last:
                assert len(last.items("nodes")) == 1


def test_vmis_of_nodes_that_exist_only_in_a_backup_are_replaced_at_once(tmp_path):
    file, elsewhere, here = (tmp_path / name for name in ("lab.backup", "elsewhere", "here"))
    here.mkdir()
    with outside(*HOLLOW, "--nodes", "2", directory=here) as user:
        user.kubectl("create", "-f", str(EXAMPLES / "testreplicaset.yaml"))
        until("three machines are ready", lambda: ready(user, 3))
        before = uids(user)
        user.corral("backup", str(file))
        user.corral("restore", "--data-dir", str(elsewhere), str(file))
    with outside(*HOLLOW, directory=elsewhere) as again:
        replaced = lambda: ready(again, 3) and not uids(again) & before  # noqa: E731
        until("there are others", replaced, seconds=120)
        assert len(again.items("nodes")) == 1


PERIODIC = [pytest.param(each, marks=pytest.mark.periodic) for each in (0.3, 0.9, 1.5)]


@pytest.mark.parametrize("moment", [0.6, 1.2, *PERIODIC])
def test_a_manager_killed_during_its_start_does_not_block_the_next(tmp_path, moment):
    command = [sys.executable, "-m", "corral", "up", *HOLLOW, "--data-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--bind", "127.0.0.1:1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with outside(*HOLLOW, directory=tmp_path) as user:
        user.kubectl("create", "-f", str(EXAMPLES / "testreplicaset.yaml"))
        until("three machines are ready", lambda: ready(user, 3))


def test_a_second_manager_is_rejected_and_the_first_runs_on(tmp_path):
    with outside(*HOLLOW, directory=tmp_path) as user:
        said = user.corral("up", *HOLLOW, check=False)
        assert "corral runs already on" in said
        assert str(user.one.process.pid) in said
        assert "Traceback" not in said
        assert user.items("nodes")


def test_a_port_in_use_is_named(tmp_path):
    with outside(*HOLLOW, directory=tmp_path) as user:
        taken = f"127.0.0.1:{user.one.port}"
        other = str(tmp_path.with_name("other"))
        said = user.corral("up", *HOLLOW, "--data-dir", other, "--bind", taken, check=False)
        assert f"{taken} is taken by another program" in said
        assert "Traceback" not in said
