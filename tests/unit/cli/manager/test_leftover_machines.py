"""Messages about machines that run without a manager."""

import os

import pytest

from corral.cli.manager import leftover_machines, up
from corral.config import Layout
from corral.node.host.proc import acquire_lock
from corral.node.state import machine_record as records


@pytest.mark.parametrize(
    ("count", "expected"), [(0, ""), (1, "1 machine runs on"), (2, "2 machines run on")]
)
def test_running_machines_are_counted_by_their_locks(tmp_path, count, expected):
    held = []
    for number in range(2):
        machine = tmp_path / "nodes" / "here" / "machines" / f"uid{number}"
        machine.mkdir(parents=True)
        record = records.Record(namespace="a", instance="b", uid=f"{number}", pod="c", pod_uid="d")
        records.write(machine, record.started())
        held += [acquire_lock(machine)] if number < count else []
    try:
        assert leftover_machines.running_on(Layout(tmp_path)) == expected
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.parametrize("many", ["", "2 machines run on"])
def test_an_interrupted_manager_reports_running_machines(monkeypatch, tmp_path, many):
    monkeypatch.setattr(leftover_machines, "running_on", lambda _: many)
    ended = up._ended(Layout(tmp_path))
    if many:
        first, then = ended.split("\n", 1)
        assert first == "The manager has ended; 2 machines run on."
        assert f"corral up --detach --data-dir {tmp_path} takes over" in then
        assert "corral down" in then
    else:
        assert ended == "The manager has ended."
