"""The machines of a host, as its data directory shows them at the start."""

import os

from corral.config import Layout
from corral.daemon.host import _running
from corral.node.host.proc import acquire_lock
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Record


def test_machines_that_run_are_known_by_uid_and_by_directory(tmp_path):
    layout = Layout(tmp_path)
    machines = layout.nodes / "a" / records.MACHINES
    for name in ("recorded", "ended", "unrecorded"):
        (machines / name).mkdir(parents=True)
    record = Record(namespace="d", instance="vm", uid="u", pod="p", pod_uid="recorded", arrival="m")
    for name in ("recorded", "ended"):
        records.write(machines / name, record)
    locks = [acquire_lock(machines / name) for name in ("recorded", "unrecorded")]
    assert _running(layout) == {"recorded", "u", "unrecorded"}
    for each in locks:
        os.close(each)
    assert _running(layout) == set()
