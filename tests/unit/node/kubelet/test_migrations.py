"""Migrations of a host for other hosts: the two sides of a migration, and nobody else."""

import msgspec
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from corral.api.errors import NotFound
from corral.api.images import MIGRATIONS_PATH
from corral.api.object import Key
from corral.node.kubelet.migrations import MigrationServer
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.messages import Command, Report
from corral.node.machine.migration.targets import LocalTarget, MigrationTargets
from corral.node.state import machine_record as records

SOURCE, TARGET, OTHER = (f"system:node:{each}" for each in ("one", "two", "three"))
SERVER = "kube-apiserver-kubelet-client"
STATE = {"migrationUid": "m", "sourceNode": "one", "targetNode": "two"}


class Api:
    def __init__(self, **changed):
        self.state = {**STATE, **changed}

    async def get(self, view, name, namespace):
        if name != "vm":
            raise NotFound(name)
        metadata = {"name": name, "namespace": namespace, "uid": "u"}
        document = {
            "metadata": metadata,
            "spec": {"domain": {"devices": {}}},
            "status": {"migrationState": self.state},
        }
        return msgspec.convert(document, view)


class Guest:
    received = False


def client(caller, api=None, targets=None):
    """Return a client of the server as a user."""
    server = MigrationServer(api or Api(), targets or MigrationTargets(), list)

    async def app(scope, receive, send):
        await server({**scope, "state": {"user": caller}}, receive, send)

    return TestClient(_Whole(app))


class _Whole:
    """An app that starts and ends beside its requests and websockets."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})


@pytest.fixture
def targets():
    made = MigrationTargets()
    made.add("m", LocalTarget(Guest(), ["root"], Key("default", "vm"), "u"))
    return made


CONTROL = f"{MIGRATIONS_PATH}?migration=m&stream=control"


def denial(client, url):
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(url):
        pass
    return refused.value.status_code, refused.value.json()["message"]


@pytest.mark.parametrize("caller", [SOURCE, SERVER])
def test_a_target_reports_to_its_source_and_obeys_it(targets, caller):
    with client(caller, targets=targets).websocket_connect(CONTROL) as control:
        report = msgspec.json.decode(control.receive_bytes(), type=Report)
        assert report == Report(TargetState.RECEIVING, ("root",))
        control.send_bytes(msgspec.json.encode(Command(cancel="enough")))
        report = msgspec.json.decode(control.receive_bytes(), type=Report)
        assert (report.state, report.failure) == (TargetState.ABSENT, "enough")
        assert control.receive()["code"] == 1000


def test_a_target_has_one_control_stream_the_latest(targets):
    with client(SOURCE, targets=targets) as app, app.websocket_connect(CONTROL) as former:
        former.receive_bytes()
        with app.websocket_connect(CONTROL) as control:
            assert former.receive()["code"] == 1000
            control.receive_bytes()
            control.send_bytes(msgspec.json.encode(Command(cancel="enough")))
            assert msgspec.json.decode(control.receive_bytes(), type=Report).failure == "enough"


def test_the_end_of_the_stream_of_memory_reaches_qemu_which_holds_both_ends(targets):
    memory = f"{MIGRATIONS_PATH}?migration=m&stream=memory"
    with client(SOURCE, targets=targets).websocket_connect(memory) as stream:
        target = targets.find("m")
        target.memory.setblocking(True)
        stream.send_bytes(b"page")
        stream.close()
        with target.memory, target.sender:
            received = b""
            while part := target.memory.recv(1 << 10):
                received += part
    assert received == b"page"


@pytest.mark.parametrize("caller", [TARGET, OTHER])
def test_no_other_node_reaches_a_target(targets, caller):
    code, message = denial(client(caller, targets=targets), CONTROL)
    assert code == 403
    assert "is not on this side of the migration: node one is" in message
    assert targets.find("m").memory is None


@pytest.mark.parametrize("changed", [{"migrationUid": "another"}, {"failed": True}])
def test_a_migration_that_is_over_is_not_served(targets, changed):
    code, _ = denial(client(SOURCE, Api(**changed), targets), CONTROL)
    assert code == 404


def test_a_migration_without_a_target_is_not_found():
    assert denial(client(SOURCE), CONTROL)[0] == 404


def test_a_stream_of_another_name_is_refused(targets):
    code, message = denial(client(SOURCE, targets=targets), f"{MIGRATIONS_PATH}?migration=m")
    assert (code, message) == (400, "stream: must be control, memory or disk")


@pytest.fixture
def source(tmp_path):
    """The targets of a host that has the source, with two files that its target needs."""
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    for name in ("root.image.raw", "seed.iso", "root.qcow2"):
        (volumes / name).write_text(name)
    record = records.Record(namespace="default", instance="vm", uid="u", pod="p", pod_uid="q")
    records.write(tmp_path, record)
    made = MigrationTargets()
    made.directories["u"] = tmp_path
    return made


FILES = f"{MIGRATIONS_PATH}?migration=m&vmi=u"


@pytest.mark.parametrize("caller", [TARGET, SERVER])
def test_a_target_gets_the_files_of_its_source(source, caller):
    reader = client(caller, targets=source)
    listed = reader.get(FILES).json()["files"]
    assert [each["name"] for each in listed] == ["root.image.raw", "seed.iso"]
    assert reader.get(f"{FILES}&file=seed.iso").content == b"seed.iso"
    assert reader.get(f"{FILES}&file=root.qcow2").status_code == 404
    assert reader.get(f"{FILES}&file=../machine.json").status_code == 404


@pytest.mark.parametrize("caller", [SOURCE, OTHER])
def test_no_other_node_gets_files(source, caller):
    assert client(caller, targets=source).get(FILES).status_code == 403


def test_files_of_a_vmi_that_is_not_here_are_not_found():
    assert client(TARGET).get(FILES).status_code == 404
