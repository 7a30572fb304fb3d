"""The status of claims, as their users read it."""

from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.controllers.claim.make import claim, pool
from tests.unit.controllers.make import make_vmi

from corral.api.errors import Forbidden
from corral.api.kinds.vmi.status import InterfaceStatus
from corral.controllers.claim import status
from corral.controllers.claim.plan import Expiry, expiry

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
PORTS = [{"name": "default", "ports": [{"port": 22}, {"port": 53, "protocol": "UDP"}]}]
KEYS = {
    "sshPublicKey": {
        "source": {"secret": {"secretName": "keys"}},
        "propagationMethod": {"qemuGuestAgent": {"users": ["demo", "root"]}},
    }
}


def machine(name="test1", **fields):
    spec = {"domain": {"devices": {"interfaces": PORTS}}, "accessCredentials": [KEYS]}
    made = make_vmi(name=name, spec=spec, **{"ready": True, **fields})
    made.status.interfaces = msgspec.convert(
        [
            {"name": "default", "ipAddress": "10.0.0.2", "ipAddresses": ["10.0.0.2", "fd00::2"]},
            {"ipAddress": "172.17.0.1", "ipAddresses": ["172.17.0.1"]},
        ],
        list[InterfaceStatus],
    )
    return made


def conditions(document):
    return {each["type"]: (each["status"], each["reason"]) for each in document["conditions"]}


def test_a_claim_that_waits_says_how_many_go_before_it():
    first, second, third = (status.pending(claim(), place, pool(), NOW) for place in (1, 2, 3))
    assert conditions(first) == {"Bound": ("False", "WaitingForSpare")}
    assert first["conditions"][0]["message"].endswith("this claim is next")
    assert second["conditions"][0]["message"].endswith("1 other goes before")
    assert third["conditions"][0]["message"].endswith("2 others go before")
    assert (third["position"], third["arrival"]) == (3, 7)


def test_a_claim_far_behind_shows_no_position():
    shown, hidden = (status.pending(claim(), place, pool(), NOW) for place in (10, 11))
    assert shown["position"] == 10
    assert "position" not in hidden
    assert hidden["arrival"] == 7
    assert hidden["conditions"][0]["message"].endswith("more than 9 others go before")


def test_a_claim_says_that_its_warm_pool_keeps_no_spares():
    document = status.pending(claim(), 1, pool(replicas=0), NOW)
    assert "keeps no spares (its replicas are 0)" in document["conditions"][0]["message"]


def test_a_claim_that_is_refused_says_why():
    waiting = claim(status=status.pending(claim(), 2, pool(), NOW))
    document = status.refused(waiting, Forbidden("no"), NOW)
    assert conditions(document) == {"Bound": ("False", "HandOutFailed")}
    assert document["conditions"][0]["message"].endswith("tried again: no")
    assert "position" not in document


def test_a_claim_without_a_warm_pool_says_what_to_create():
    document = status.without_pool(claim(), NOW)
    assert conditions(document) == {"Bound": ("False", "WarmPoolNotFound")}
    assert "create it" in document["conditions"][0]["message"]
    assert "position" not in document


def test_a_bound_claim_says_how_its_machine_is_reached():
    vmi = machine()
    document = status.bound(claim(ttl="10m", status={"position": 1}), vmi, NOW)
    assert conditions(document) == {
        "Bound": ("True", "Bound"),
        "Ready": ("True", "MachineReady"),
        "AgentConnected": ("False", "AgentNotConnected"),
    }
    assert document["vmi"]["name"] == "test1"
    assert document["vmi"]["podName"].startswith("virt-launcher-test1-")
    assert document["addresses"] == ["10.0.0.2", "fd00::2"]  # no bridge of the guest's own
    assert document["ports"] == [{"port": 22}, {"port": 53, "protocol": "UDP"}]
    assert document["ssh"] == "corral ssh demo@vmi/test1/default"
    assert (document["boundAt"], document["expiresAt"]) == (
        "2026-01-01T00:01:00Z",
        "2026-01-01T00:11:00Z",
    )
    assert "position" not in document


def test_a_claim_stays_bound_since_it_was_bound_first():
    before = {"vmi": {"name": "test1", "uid": "u"}, "boundAt": "2026-01-01T00:00:30Z"}
    document = status.bound(claim(status=before), machine(), NOW)
    assert document["boundAt"] == "2026-01-01T00:00:30Z"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"phase": "Failed"}, "MachineEnded"),
        ({"phase": "Succeeded"}, "MachineEnded"),
        ({"phase": "Succeeded", "going": True}, "MachineDeleted"),
        ({"going": True}, "MachineDeleted"),
        ({"ready": False}, "MachineNotReady"),
        ({}, "MachineReady"),
    ],
)
def test_a_claim_is_as_ready_as_its_machine(fields, reason):
    assert status.readiness(claim(), machine(**fields)).reason == reason


@pytest.mark.parametrize(
    ("fields", "connected"),
    [({}, "True"), ({"phase": "Failed"}, "False"), ({"conditions": []}, "False")],
)
def test_a_claim_says_whether_commands_can_be_run(fields, connected):
    agent = {"conditions": [{"type": "AgentConnected", "status": "True"}], **fields}
    assert status.connection(machine(**agent)).status == connected


def test_a_claim_whose_machine_is_gone_says_what_to_do():
    state = status.readiness(claim(), None)
    assert state.reason == "MachineDeleted"
    assert "create another one" in state.message


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, ("False", "UserDataPending")),
        ({"status": "False", "reason": "UserDataPending"}, ("False", "UserDataPending")),
        ({"status": "False", "reason": "UserDataFailed"}, ("False", "UserDataFailed")),
        ({"status": "True"}, ("True", "MachineReady")),
    ],
)
def test_a_claim_with_user_data_is_ready_once_the_guest_has_run_it(condition, expected):
    found = [{"type": "Ready", "status": "True"}]
    if condition is not None:
        found.append({"type": "UserDataApplied", **condition})
    state = status.readiness(claim(userData={"inline": "#!"}), machine(conditions=found))
    assert state[:2] == expected


def test_an_expired_claim_says_why_and_is_not_ready():
    bound = claim(status=status.bound(claim(ttl="10m"), machine(), NOW), ttl="10m")
    document = status.expired(bound, expiry(bound), NOW)
    assert conditions(document) == {
        "AgentConnected": ("False", "Expired"),
        "Bound": ("False", "Expired"),
        "Ready": ("False", "Expired"),
        "Expired": ("True", "TTL"),
    }
    assert document["conditions"][0]["message"] == "its machine test1 is deleted, as it has expired"
    assert not {"vmi", "addresses", "ssh"} & document.keys()


def test_a_claim_that_expires_without_a_warm_pool_says_so():
    waiting = claim(status=status.without_pool(claim(), NOW))
    document = status.expired(waiting, Expiry(NOW, "PendingTimeout"), NOW)
    assert "no VirtualMachineWarmPool spares" in document["conditions"][0]["message"]


def test_a_claim_that_expires_while_it_waits_was_never_bound():
    waiting = claim(status=status.pending(claim(), 1, pool(), NOW))
    document = status.expired(waiting, Expiry(NOW, "PendingTimeout"), NOW)
    assert conditions(document) == {
        "Bound": ("False", "PendingTimeout"),
        "Expired": ("True", "PendingTimeout"),
    }
    assert "position" not in document


def test_only_fields_that_differ_are_written():
    waiting = claim(status=status.pending(claim(), 2, pool(), NOW))
    assert status.difference(waiting.status, status.pending(waiting, 2, pool(), NOW)) == {}
    changed = status.difference(waiting.status, status.bound(waiting, machine(), NOW))
    assert changed["position"] is None
    assert "arrival" not in changed
    assert "observedGeneration" not in changed
