"""What is written down of machines."""

import os

import pytest

from corral.node import record as records
from corral.node.record import Outcome, Record, Stage

RECORD = Record(namespace="default", instance="vm", uid="u", pod="p", pod_uid="q")


def test_a_record_is_read_as_it_was_written(tmp_path):
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


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b'{"stage":"Unheard"}', b'{"namespace":"\xff"}']
)
def test_a_torn_record_is_no_record(tmp_path, content):
    (tmp_path / records.NAME).write_bytes(content)
    assert records.read(tmp_path) is None


def test_machines_are_found_with_and_without_a_record(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "file").touch()
    records.write(tmp_path / "two", RECORD)
    assert list(records.scan(tmp_path)) == [(tmp_path / "one", None), (tmp_path / "two", RECORD)]


def test_nothing_remains_of_what_is_erased(tmp_path):
    directory = tmp_path / "machine"
    (directory / "volumes").mkdir(parents=True)
    (directory / "volumes" / "root.qcow2").touch()
    (directory / "link").symlink_to(tmp_path)
    records.write(directory, RECORD)
    records.erase(directory)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_erased(tmp_path):
    records.erase(tmp_path / "never-there")


def test_a_node_of_an_earlier_run_is_known_by_its_machines(tmp_path):
    assert not records.has_machines(tmp_path / "never-there")
    (tmp_path / records.MACHINES).mkdir()
    assert not records.has_machines(tmp_path)
    (tmp_path / records.MACHINES / "uid").mkdir()
    assert records.has_machines(tmp_path)


def test_a_machine_holds_of_the_disk_what_is_its_alone(tmp_path):
    machine = tmp_path / "machine"
    machine.mkdir()
    (machine / "root.qcow2").write_bytes(bytes(10_000))
    (machine / "sparse.raw").touch()
    os.truncate(machine / "sparse.raw", 1 << 30)
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    os.link(tmp_path / "image", machine / "root.image.raw")
    assert 10_000 <= records.own_bytes(machine) < 100_000
