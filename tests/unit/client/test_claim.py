"""Claims as programs see them; tests/sim waits for real ones."""

import msgspec
import pytest

from corral.api.kinds.corral.claim import VirtualMachineClaim
from corral.client import claim as claims
from corral.client.claim import ClaimError, CommandError, Machine, Request, is_usable
from corral.client.commands import CommandResult
from corral.client.kubeconfig import Kubeconfig

CONFIG = Kubeconfig(server="https://127.0.0.1:1")
BOUND = {"type": "Bound", "status": "True", "reason": "Bound"}


def claim(*conditions, **spec):
    document = {
        "metadata": {"name": "job"},
        "spec": {"warmPoolRef": {"name": "spares"}, **spec},
        "status": {"conditions": [{"message": "because", **each} for each in conditions]},
    }
    return msgspec.convert(document, VirtualMachineClaim)


def condition(name, status, reason=""):
    return {"type": name, "status": status, "reason": reason}


def test_a_request_holds_what_was_given_only():
    assert Request(pool="spares").document() == {
        "metadata": {"generateName": "spares-"},
        "spec": {"warmPoolRef": {"name": "spares"}},
    }
    whole = Request(pool="spares", name="job", ttl="10m", pending_timeout="5m", user_data="#!")
    assert whole.document() == {
        "metadata": {"name": "job"},
        "spec": {
            "warmPoolRef": {"name": "spares"},
            "ttl": "10m",
            "pendingTimeout": "5m",
            "userData": {"inline": "#!"},
        },
    }
    secret = Request(pool="spares", user_data_secret="seed").document()
    assert secret["spec"]["userData"] == {"secretRef": {"name": "seed"}}


@pytest.mark.parametrize(
    ("conditions", "usable"),
    [
        ([], False),
        ([condition("Bound", "False", "WaitingForSpare")], False),
        ([BOUND], False),
        ([BOUND, condition("Ready", "False", "MachineNotReady")], False),
        ([BOUND, condition("Ready", "False", "UserDataPending")], False),
        ([BOUND, condition("Ready", "True")], True),
    ],
)
def test_a_machine_is_usable_once_its_claim_is_ready(conditions, usable):
    assert is_usable(claim(*conditions)) is usable


@pytest.mark.parametrize(
    "conditions",
    [
        [condition("Expired", "True", "TTL")],
        [condition("Bound", "False", "WarmPoolNotFound")],
        [BOUND, condition("Ready", "False", "MachineEnded")],
        [BOUND, condition("Ready", "False", "UserDataFailed")],
    ],
)
def test_a_claim_that_never_gets_ready_is_an_error_that_says_why(conditions):
    with pytest.raises(ClaimError, match="because"):
        is_usable(claim(*conditions))


def test_a_claim_that_may_wait_waits_for_its_pool():
    missing = condition("Bound", "False", "WarmPoolNotFound")
    assert is_usable(claim(missing, pendingTimeout="5m")) is False


async def test_a_command_that_fails_raises_its_result(monkeypatch):
    result = CommandResult(exit_code=3, errors=b"no such file\n")

    async def run(_config, pod, command, typed):
        assert (pod.namespace, pod.name, command, typed) == ("default", "pod", ["cat"], b"x")
        return result

    monkeypatch.setattr(claims.commands, "run", run)
    machine = Machine(
        claim="job", name="vm", namespace="default", addresses=(), ssh="", pod="pod", config=CONFIG
    )
    with pytest.raises(CommandError, match="cat has ended with exit code 3: no such file") as error:
        await machine.run(["cat"], typed=b"x")
    assert error.value.result is result
    assert await machine.run(["cat"], typed=b"x", check=False) is result
