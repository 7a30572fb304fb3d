"""What a VMI's migrationState has a machine do, on the source and on the target."""

from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.api.errors import NotFound
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.agent.migration_sync import MigrationSync
from corral.node.hypervisor import Change, MigrationOptions
from corral.node.machine.migration.handover import TargetState
from corral.node.state.facts import Facts, fold, not_received, start_failed
from corral.node.state.machine_record import Record, Stage
from corral.node.status.pod_status import pod_status

NAMED = {"namespace": "default", "instance": "vm", "uid": "u"}
SOURCE = Record(**NAMED, pod="source", pod_uid="1", stage=Stage.STARTED, started_at=1.0)
TARGET = Record(**NAMED, pod="target", pod_uid="2", arrival="m")
STATE = {
    "migrationUid": "m",
    "sourceNode": "a",
    "sourcePod": "source",
    "targetNode": "b",
    "targetPod": "target",
}
PREPARED = {**STATE, "targetNodeAddress": "192.0.2.2"}


class Pods:
    """A client that has these pods."""

    def __init__(self, *pods):
        self._pods = {pod.metadata.name: pod for pod in pods}

    async def get(self, _kind, name, _namespace):
        if name not in self._pods:
            raise NotFound(f"no pod {name}")
        return self._pods[name]


class Machine:
    """A machine that notes what it is requested."""

    def __init__(self, record, *, awaits_addresses=True):
        self.record = record
        self.calls = []
        self.arrival = SimpleNamespace(
            awaits_addresses=awaits_addresses,
            arrange=lambda *given: self.calls.append(("arrange", *given)),
            end=lambda why: self.calls.append(("end", why)),
        )
        self.departure = SimpleNamespace(
            request=lambda order: self.calls.append(("request", order)),
            cancel=lambda: self.calls.append(("cancel",)),
            observe=lambda target: self.calls.append(("observe", target)),
        )


def pod(name, phase="Running", *addresses):
    status = {"phase": phase, "podIPs": [{"ip": each} for each in addresses]}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Pod)


def ended(facts):
    """The target's pod, as its node reports that its machine has ended."""
    facts = fold(facts, Change.GONE)
    spec = {"containers": [{"name": "compute"}]}
    status = pod_status(facts, msgspec.convert({"spec": spec}, Pod), "", "2026-01-01T00:00:00Z")
    return msgspec.convert({"metadata": {"name": "target"}, "status": status}, Pod)


def vmi(state, *, node="a", phase="Running"):
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase, "nodeName": node, "migrationState": state},
    }
    return msgspec.convert(document, VirtualMachineInstance)


async def calls(machine, state, *pods, here="a", **of_vmi):
    await MigrationSync(Pods(*pods), here).sync(machine, vmi(state, **of_vmi))
    return machine.calls


async def test_a_target_takes_over_the_addresses_of_the_sources_pod():
    source = pod("source", "Running", "10.0.0.7", "fd00::7")
    assert await calls(Machine(TARGET), STATE, source, here="b") == [
        ("arrange", vmi(STATE), ["10.0.0.7", "fd00::7"], "a")
    ]
    known = Machine(TARGET, awaits_addresses=False)
    assert await calls(known, STATE, source, here="b") == []


async def test_a_target_ends_with_its_migration_or_without_its_source():
    failed = {**STATE, "failed": True, "failureReason": "it was cancelled"}
    assert await calls(Machine(TARGET), failed, here="b") == [("end", "it was cancelled")]
    assert await calls(Machine(TARGET), STATE, here="b") == [("end", "the pod source is gone")]


async def test_a_target_is_not_concerned_by_another_migration():
    failed = {**STATE, "migrationUid": "n", "failed": True}
    assert await calls(Machine(TARGET), failed, here="b") == []


async def test_a_source_migrates_once_the_target_can_receive():
    assert await calls(Machine(SOURCE), STATE) == []
    [(call, order)] = await calls(Machine(SOURCE), PREPARED)
    assert (call, order.uid, order.node) == ("request", "m", "b")
    assert order.options == MigrationOptions()


async def test_settings_of_a_migration_are_those_of_its_state():
    settings = {
        "bandwidthPerMigration": "64Mi",
        "progressTimeout": 150,
        "completionTimeoutPerGiB": 100,
        "allowAutoConverge": True,
        "maxDowntimeMs": 50,
    }
    state = {**PREPARED, "migrationConfiguration": settings}
    [(_, order)] = await calls(Machine(SOURCE), state)
    assert order.options == MigrationOptions(
        bandwidth=64 << 20,
        progress_seconds=150,
        completion_seconds_per_gib=100,
        auto_converge=True,
        max_downtime_ms=50,
    )


async def test_a_source_cancels_on_request():
    machine = Machine(SOURCE)
    said = await calls(machine, {**PREPARED, "abortRequested": True})
    assert [each[0] for each in said] == ["cancel", "request"]


@pytest.mark.parametrize(
    ("state", "of_vmi"),
    [
        ({**PREPARED, "completed": True}, {}),
        ({**PREPARED, "sourceNode": "c"}, {}),
        ({**PREPARED, "sourcePod": "another"}, {}),
        (PREPARED, {"phase": "Failed"}),
        (None, {}),
    ],
)
async def test_a_machine_that_is_no_source_migrates_nothing(state, of_vmi):
    assert await calls(Machine(SOURCE), state, **of_vmi) == []


FENCED = Facts(fenced="the node was cut off")
SENT = msgspec.structs.replace(SOURCE, stage=Stage.SENT, departure="m", departure_node="b")


@pytest.mark.parametrize(
    ("pods", "node", "observed"),
    [
        ([pod("target")], "b", [("observe", TargetState.RUNNING)]),
        ([pod("target")], "a", []),
        ([pod("target", "Failed")], "a", [("observe", TargetState.GONE)]),
        ([ended(not_received(Facts(), "no room"))], "a", [("observe", TargetState.ABSENT)]),
        ([ended(not_received(FENCED, "no room"))], "a", [("observe", TargetState.ABSENT)]),
        ([ended(start_failed(Facts(), "no room"))], "a", [("observe", TargetState.GONE)]),
        ([ended(FENCED)], "a", [("observe", TargetState.GONE)]),
        ([ended(Facts())], "a", [("observe", TargetState.GONE)]),
        ([], "a", [("observe", TargetState.GONE)]),
    ],
)
async def test_a_source_that_has_sent_learns_what_the_api_knows_of_the_target(pods, node, observed):
    assert await calls(Machine(SENT), PREPARED, *pods, node=node) == observed
