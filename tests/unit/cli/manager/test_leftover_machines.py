"""What is said of machines that run on without a manager."""

import os

import pytest

from corral.cli.manager import leftover_machines
from corral.config import Layout
from corral.node.host import process
from corral.node.state import machine_record as records


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (1, "1 machine runs on"), (2, "2 machines run on")]
)
def test_machines_are_counted_by_their_locks(tmp_path, count, told):
    held = []
    for number in range(2):
        machine = tmp_path / "nodes" / "here" / "machines" / f"uid{number}"
        machine.mkdir(parents=True)
        record = records.Record(namespace="a", instance="b", uid=f"{number}", pod="c", pod_uid="d")
        records.write(machine, record.started())
        held += [process.hold(machine)] if number < count else []
    try:
        assert leftover_machines.running_on(Layout(tmp_path)) == told
    finally:
        for descriptor in held:
            os.close(descriptor)
