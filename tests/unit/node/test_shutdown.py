"""What is left of a machine that was ended without a manager."""

from corral.node import record as records
from corral.node.hollow import Hollow
from corral.node.record import Record, Stage
from corral.node.shutdown import end_machines


async def test_of_a_machine_that_was_shut_down_its_record_and_logs_stay(tmp_path):
    directory = tmp_path / records.MACHINES / "u1"
    (directory / "volumes").mkdir(parents=True)
    record = Record(
        namespace="default", instance="one", uid="u1", pod="p", pod_uid="pu", stage=Stage.STARTED
    )
    records.write(directory, record)
    for name in ("root.qcow2", "console.log", "console.log.1", "volumes/seed.iso"):
        (directory / name).write_text("secret")
    ended = []
    await end_machines(tmp_path, Hollow(), seconds=0, ended=ended.append)
    assert ended == ["one"]
    assert sorted(each.name for each in directory.iterdir()) == [
        *("console.log", "console.log.1", "machine.json")
    ]
    assert records.read(directory).stage is Stage.ENDED
