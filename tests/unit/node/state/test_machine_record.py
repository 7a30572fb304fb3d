"""What is written down of machines."""

import os
import time

import msgspec
import pytest

from corral.node.state import machine_record as records
from corral.node.state.machine_record import Outcome, Record, Stage

RECORD = Record(namespace="default", instance="vm", uid="u", pod="p", pod_uid="q")


def test_records_round_trip(tmp_path):
    ended = Record(
        namespace="default",
        instance="vm",
        uid="u",
        pod="p",
        pod_uid="q",
        stage=Stage.ENDED,
        outcome=Outcome.FAILED,
        message="why",
    )
    for record in (RECORD, ended):
        records.write(tmp_path, record)
        assert records.read(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [records.NAME]


def test_a_released_guest_is_recorded_as_started():
    before = time.time()
    started = RECORD.started()
    assert before <= started.started_at <= time.time()
    assert msgspec.structs.replace(RECORD, stage=Stage.STARTED) == msgspec.structs.replace(
        started, started_at=0.0
    )
    saving = msgspec.structs.replace(started, stage=Stage.SAVING)
    assert saving.save_cancelled() == started


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b'{"stage":"Unheard"}', b'{"namespace":"\xff"}']
)
def test_a_torn_record_counts_as_missing(tmp_path, content):
    (tmp_path / records.NAME).write_bytes(content)
    assert records.read(tmp_path) is None


def test_machines_are_found_with_and_without_a_record(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "file").touch()
    records.write(tmp_path / "two", RECORD)
    assert list(records.scan(tmp_path)) == [(tmp_path / "one", None), (tmp_path / "two", RECORD)]


def test_machines_without_a_recorded_end_are_unfinished(tmp_path):
    machines = tmp_path / records.MACHINES
    for name in ("ended", "running", "unknown"):
        (machines / name).mkdir(parents=True)
    records.write(machines / "running", RECORD.started())
    records.write(machines / "ended", msgspec.structs.replace(RECORD, stage=Stage.ENDED))
    assert [directory.name for directory, _ in records.unfinished(tmp_path)] == ["running"]


def test_stripping_keeps_the_record_and_logs(tmp_path):
    (tmp_path / "volumes").mkdir()
    (tmp_path / "volumes" / "root.qcow2").touch()
    (tmp_path / "root.qcow2").touch()
    (tmp_path / "serial.log").touch()
    (tmp_path / "serial.log.1").touch()
    records.write(tmp_path, RECORD)
    records.strip(tmp_path)
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {records.NAME, "serial.log", "serial.log.1"}


def test_stripping_a_missing_machine_is_no_error(tmp_path):
    records.strip(tmp_path / "never-there")


def test_erasing_leaves_nothing(tmp_path):
    directory = tmp_path / "machine"
    (directory / "volumes").mkdir(parents=True)
    (directory / "volumes" / "root.qcow2").touch()
    (directory / "link").symlink_to(tmp_path)
    records.write(directory, RECORD)
    records.erase(directory)
    assert list(tmp_path.iterdir()) == []


def test_erasing_a_missing_machine_is_no_error(tmp_path):
    records.erase(tmp_path / "never-there")


def test_nodes_of_earlier_runs_are_found_by_their_machines(tmp_path):
    assert not records.has_machines(tmp_path / "never-there")
    (tmp_path / records.MACHINES).mkdir()
    assert not records.has_machines(tmp_path)
    (tmp_path / records.MACHINES / "uid").mkdir()
    assert records.has_machines(tmp_path)


def test_disk_usage_of_a_machine_excludes_shared_images(tmp_path):
    machine = tmp_path / "machine"
    machine.mkdir()
    (machine / "root.qcow2").write_bytes(bytes(10_000))
    (machine / "sparse.raw").touch()
    os.truncate(machine / "sparse.raw", 1 << 30)
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    os.link(tmp_path / "image", machine / "root.image.raw")
    assert 10_000 <= records.own_bytes(machine) < 100_000
