"""Requests to VirtualMachines: done, or rejected with KubeVirt's messages."""

import asyncio

import pytest
from tests.unit.server.conftest import VMS

from corral.api.object import Key
from corral.server.node_proxy.forwarding import Forward
from corral.server.subresources.kubevirt.virtual_machines import OPERATIONS

PATH = "/apis/subresources.kubevirt.io/{}/namespaces/default/virtualmachines/vm/{}"
CONFLICT = 'Operation cannot be fulfilled on virtualmachine.kubevirt.io "vm": '
STORED = "virtualmachineinstances.kubevirt.io"
KEY = Key("default", "vm")
MIGRATIONS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
START = {"action": "Start"}
STOP = {"action": "Stop", "uid": "uid-1"}
GIVEN = {"conditions": [{"type": "Ready", "status": "True"}]}


def path(sub, version="v1"):
    return PATH.format(version, sub)


@pytest.fixture
def store(ask, machine):
    """Stores a VirtualMachine, and its machine where that has a phase."""

    async def put(strategy, phase=None, *, status=None, **spec):
        how = {"running": strategy} if isinstance(strategy, bool) else {"runStrategy": strategy}
        template = {"spec": {**machine["spec"], **spec}}
        body = {"metadata": {"name": "vm"}, "spec": {**how, "template": template}}
        made = await ask("POST", VMS, body)
        assert made.status == 201, made.text
        if status:
            answer = await ask.patch(f"{VMS}/vm/status", {"status": status})
            assert answer.status == 200, answer.text
        if phase is not None:
            owner = {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "name": "vm",
                "uid": made.metadata["uid"],
                "controller": True,
            }
            vmi = {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {
                    "name": "vm",
                    "namespace": "default",
                    "uid": "uid-1",
                    "ownerReferences": [owner],
                },
                "spec": {**machine["spec"], **spec},
                "status": {
                    "phase": phase,
                    "nodeName": "one",
                    "interfaces": [{"ipAddress": "10.0.0.1"}],
                },
            }
            await ask.server.store.write(STORED, KEY, vmi)

    return put


async def vm(ask):
    return (await ask("GET", f"{VMS}/vm")).document


async def state_change_requests(ask):
    return (await vm(ask)).get("status", {}).get("stateChangeRequests", [])


# ------------------------------------------------------------------------ start


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_starting_a_halted_vm_sets_run_strategy_always(ask, store, version):
    await store("Halted")
    answer = await ask("PUT", path("start", version), {})
    assert (answer.status, answer.text) == (202, "")
    found = await vm(ask)
    assert found["spec"]["runStrategy"] == "Always"
    assert found["metadata"]["generation"] == 2
    assert await state_change_requests(ask) == []


async def test_starting_a_vm_with_running_false_sets_running_true(ask, store):
    await store(False)
    assert (await ask("PUT", path("start"))).status == 202
    spec = (await vm(ask))["spec"]
    assert spec["running"] is True
    assert "runStrategy" not in spec


async def test_starting_a_halted_vm_paused_adds_a_request(ask, store):
    await store("Halted")
    assert (await ask("PUT", path("start"), {"paused": True})).status == 202
    assert await state_change_requests(ask) == [{**START, "data": {"paused": "true"}}]
    assert (await vm(ask))["spec"]["runStrategy"] == "Halted"


@pytest.mark.parametrize(
    ("strategy", "phase", "requests"),
    [
        ("Manual", None, [START]),
        ("RerunOnFailure", None, [START]),
        ("Manual", "Succeeded", [STOP, START]),
        ("Manual", "Failed", [STOP, START]),
        ("RerunOnFailure", "Succeeded", [STOP, START]),
        ("Manual", "", [START]),
        ("Manual", "Unknown", [START]),
    ],
)
async def test_starting_a_manual_vm_adds_a_request(ask, store, strategy, phase, requests):
    await store(strategy, phase)
    assert (await ask("PUT", path("start"))).status == 202
    assert await state_change_requests(ask) == requests


@pytest.mark.parametrize(
    ("strategy", "phase", "why"),
    [
        ("Manual", "Running", "VM is already running"),
        ("Always", "Scheduling", "VM is already running"),
        ("Halted", "Running", "VM is already running"),
        ("Always", None, "Always does not support manual start requests"),
        (True, None, "Always does not support manual start requests"),
        ("Once", "Failed", "Once does not support manual start requests"),
        (
            "RerunOnFailure",
            "Failed",
            "RerunOnFailure does not support starting VM from failed state",
        ),
    ],
)
async def test_invalid_starts_are_rejected(ask, store, strategy, phase, why):
    await store(strategy, phase)
    answer = await ask("PUT", path("start"))
    assert (answer.status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == CONFLICT + why


# ------------------------------------------------------------------------- stop


@pytest.mark.parametrize("strategy", ["Always", "Once"])
async def test_stopping_a_vm_sets_run_strategy_halted(ask, store, strategy):
    await store(strategy, "Running")
    assert (await ask("PUT", path("stop"))).status == 202
    assert (await vm(ask))["spec"]["runStrategy"] == "Halted"


async def test_stopping_a_vm_with_running_true_sets_running_false(ask, store):
    await store(True, "Running")
    assert (await ask("PUT", path("stop"))).status == 202
    assert (await vm(ask))["spec"]["running"] is False


@pytest.mark.parametrize("strategy", ["Manual", "RerunOnFailure"])
async def test_stopping_a_manual_vm_adds_a_request_with_the_uid(ask, store, strategy):
    await store(strategy, "Running")
    assert (await ask("PUT", path("stop"))).status == 202
    assert await state_change_requests(ask) == [STOP]


@pytest.mark.parametrize("strategy", ["Manual", "RerunOnFailure", "Halted"])
@pytest.mark.parametrize("phase", [None, "Succeeded", "Failed"])
async def test_stopping_a_vm_that_does_not_run_is_rejected(ask, store, strategy, phase):
    await store(strategy, phase)
    answer = await ask("PUT", path("stop"))
    assert (answer.status, answer["message"]) == (409, CONFLICT + "VM is not running")


@pytest.mark.parametrize(
    ("known", "body", "status"),
    [
        (30, {}, 409),
        (30, {"gracePeriod": 30}, 409),
        (30, {"gracePeriod": 0}, 202),
        (None, {"gracePeriod": 60}, 202),
    ],
)
async def test_stopping_a_halted_vm_shortens_its_grace_period(ask, store, known, body, status):
    spec = {} if known is None else {"terminationGracePeriodSeconds": known}
    await store("Halted", "Running", **spec)
    answer = await ask("PUT", path("stop"), body)
    assert answer.status == status
    if status == 409:
        why = "Halted only supports manual stop requests with a shorter graceperiod"
        assert answer["message"] == CONFLICT + why
    else:
        assert await state_change_requests(ask) == [STOP]


@pytest.mark.parametrize("strategy", ["Always", "Manual"])
async def test_a_stop_sets_the_grace_period_of_the_vmi(ask, store, strategy):
    await store(strategy, "Running", terminationGracePeriodSeconds=30)
    assert (await ask("PUT", path("stop"), {"gracePeriod": 0})).status == 202
    vmi = ask.server.store.latest(STORED, KEY).document()
    assert vmi["spec"]["terminationGracePeriodSeconds"] == 0
    assert vmi["status"]["phase"] == "Running"


async def test_a_negative_grace_period_is_rejected(ask, store):
    await store("Manual", "Running")
    answer = await ask("PUT", path("stop"), {"gracePeriod": -1})
    assert (answer.status, answer["message"]) == (
        400,
        "gracePeriod has to be greater or equal to 0",
    )


async def test_a_grace_period_beyond_the_calendar_is_rejected(ask, store):
    await store("Manual", "Running")
    answer = await ask("PUT", path("stop"), {"gracePeriod": 2**31})
    assert (answer.status, answer["message"]) == (
        400,
        "gracePeriod must be less than or equal to 2147483647",
    )


# ---------------------------------------------------------------------- restart


@pytest.mark.parametrize("strategy", ["Always", "Manual", "RerunOnFailure"])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
async def test_a_restart_is_a_stop_and_a_start(ask, store, strategy, phase):
    await store(strategy, phase)
    assert (await ask("PUT", path("restart"))).status == 202
    assert await state_change_requests(ask) == [STOP, START]


async def test_a_forced_restart_sets_a_grace_period_of_a_second(ask, store):
    await store("Always", "Running")
    assert (await ask("PUT", path("restart"), {"gracePeriodSeconds": 0})).status == 202
    vmi = ask.server.store.latest(STORED, KEY).document()
    assert vmi["spec"]["terminationGracePeriodSeconds"] == 1
    assert await state_change_requests(ask) == [STOP, START]


@pytest.mark.parametrize(
    ("strategy", "phase", "body", "code", "message"),
    [
        (
            "Halted",
            "Running",
            {},
            409,
            f"{CONFLICT}RunStategy Halted does not support manual restart requests",
        ),
        (
            "Once",
            "Running",
            {},
            409,
            f"{CONFLICT}RunStategy Once does not support manual restart requests",
        ),
        ("Always", None, {}, 409, f"{CONFLICT}VM is not running: Halted"),
        (
            "Always",
            "Running",
            {"gracePeriodSeconds": 5},
            400,
            "For force restart, only gracePeriod=0 is supported for now",
        ),
        (
            "Always",
            "Running",
            {"gracePeriodSeconds": -1},
            400,
            "gracePeriod has to be greater or equal to 0",
        ),
    ],
)
async def test_invalid_restarts_are_rejected(ask, store, strategy, phase, body, code, message):
    await store(strategy, phase)
    answer = await ask("PUT", path("restart"), body)
    assert (answer.status, answer["message"]) == (code, message)


# ---------------------------------------------------------- requests one by one


async def test_a_pending_request_can_be_replaced_by_a_stop_only(ask, store):
    await store("Manual", "Running", status={**GIVEN, "stateChangeRequests": [STOP, START]})
    answer = await ask("PUT", path("restart"))
    assert (answer.status, answer["message"]) == (
        500,
        "Internal error occurred: unable to complete request: stop/start already underway",
    )
    assert (await ask("PUT", path("stop"))).status == 202
    assert await state_change_requests(ask) == [STOP]


async def test_a_request_clears_the_start_failure(ask, store):
    failure = {"consecutiveFailCount": 3, "retryAfterTimestamp": "2030-01-01T00:00:00Z"}
    await store("RerunOnFailure", status={**GIVEN, "startFailure": failure})
    assert (await ask("PUT", path("start"))).status == 202
    status = (await vm(ask))["status"]
    assert "startFailure" not in status
    assert status["conditions"] == GIVEN["conditions"]


async def test_of_two_concurrent_requests_one_is_a_conflict(ask, store):
    await store("Manual", "Running")
    answers = await asyncio.gather(*(ask("PUT", path("restart")) for _ in range(2)))
    assert sorted(answer.status for answer in answers) == [202, 500]


async def test_a_dry_run_changes_nothing_and_validates(ask, store):
    await store("Halted")
    before = await vm(ask)
    assert (await ask("PUT", path("start"), {"dryRun": ["All"]})).status == 202
    assert await vm(ask) == before
    assert (await ask("PUT", path("stop"), {"dryRun": ["All"]})).status == 409


# ------------------------------------------------------------------ other subresources


async def test_a_missing_vm_has_kubevirts_error(ask):
    for sub in ("start", "migrate"):
        answer = await ask("PUT", path(sub))
        assert (answer.status, answer["message"]) == (
            404,
            'virtualmachine.kubevirt.io "vm" not found',
        )


@pytest.mark.parametrize(
    ("phase", "code", "message"),
    [
        (None, 404, 'virtualmachineinstance.kubevirt.io "vm" not found'),
        ("Scheduling", 409, f"{CONFLICT}VM is not running"),
    ],
)
async def test_migration_is_rejected_with_a_reason(ask, store, phase, code, message):
    await store("Always", phase)
    answer = await ask("PUT", path("migrate"))
    assert (answer.status, answer["message"]) == (code, message)


async def test_a_running_vm_is_migrated(ask, store):
    await store("Always", "Running")
    options = {"addedNodeSelector": {"zone": "b"}}
    tried = await ask("PUT", path("migrate"), {**options, "dryRun": ["All"]})
    assert (tried.status, (await ask("GET", MIGRATIONS)).names) == (202, [])
    assert (await ask("PUT", path("migrate"), options)).status == 202
    (migration,) = (await ask("GET", MIGRATIONS))["items"]
    assert migration["metadata"]["name"].startswith("kubevirt-migrate-vm-")
    assert migration["spec"] == {"vmiName": "vm", **options}
    again = await ask("PUT", path("migrate"))
    assert (again.status, "in-flight migration detected" in again["message"]) == (400, True)


async def test_portforward_is_that_of_the_vmi(ask, store):
    upgrade = {"upgrade": "websocket", "connection": "upgrade"}
    ask.server.subresources.nodes = lambda name: f"the agent of {name}"
    await store("Always")
    answer = await ask("GET", path("portforward/22"), headers=upgrade)
    assert (answer.status, answer["message"]) == (409, f"{CONFLICT}VMI is not started")
    await ask("DELETE", f"{VMS}/vm")
    await store("Always", "Running")
    forward = await ask.raw("GET", path("portforward/22"), None, upgrade)
    assert isinstance(forward, Forward)
    assert forward.path == "/portforward/default/vm/uid-1/22/tcp"


async def test_an_invalid_body_is_rejected(ask, store):
    await store("Manual")
    for body in (b"{", b'{"paused": 3}', b'{"gracePeriod": "x"}', b"[]"):
        answer = await ask("PUT", path("start"), body)
        assert answer.status == 400
        assert answer["message"].startswith("Can not unmarshal Request body to struct, error:")


async def test_every_action_is_in_discovery_and_a_put(ask, store):
    listed = await ask("GET", "/apis/subresources.kubevirt.io/v1")
    names = {each["name"]: each["verbs"] for each in listed["resources"]}
    await store("Always")
    for name in OPERATIONS:
        assert names[f"virtualmachines/{name}"] == ["update"]
        assert (await ask("GET", path(name))).status == 405
        assert (await ask("PUT", path(name))).status in (202, 400, 404, 409)
    assert names["virtualmachines/portforward"] == ["get"]


async def test_the_forbidden_error_names_the_group_of_subresources(ask, store):
    await store("Halted")
    answer = await ask.as_user("somebody")("PUT", path("start"))
    assert answer.status == 403
    assert 'API group "subresources.kubevirt.io"' in answer["message"]
    assert (await vm(ask))["spec"]["runStrategy"] == "Halted"


@pytest.mark.parametrize("sub", ["memorydump", "removememorydump"])
async def test_a_memory_dump_is_rejected_and_names_the_claim(ask, store, sub):
    await store("Always", "Running")
    body = {"claimName": "dump", "phase": "Associating"} if sub == "memorydump" else None
    answer = await ask("PUT", path(sub), body)
    assert answer.status == 400
    why = "memory dumps are not supported by this version"
    named = (
        "; the claim dump is left as it is: if it was made for the dump, delete it with kubectl "
        "delete pvc dump -n default"
    )
    assert answer["message"] == why + (named if body else "")
