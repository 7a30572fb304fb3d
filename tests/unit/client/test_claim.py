"""Claims as programs see them; tests/sim waits for real ones."""

import asyncio
from types import SimpleNamespace

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
        [BOUND, condition("Ready", "False", "UserDataNotFound")],
    ],
)
def test_a_claim_that_never_gets_ready_is_an_error_that_says_why(conditions):
    with pytest.raises(ClaimError, match="because"):
        is_usable(claim(*conditions))


class Claims:
    """Answers for the API: the versions of one claim, one for each get and event of a watch."""

    def __init__(self, *versions):
        self._versions = list(versions)

    async def get(self, _kind, _name, _namespace):
        return self._versions.pop(0)

    async def watch(self, *_, **__):
        yield SimpleNamespace(type="MODIFIED", object=self._versions.pop(0))


def machine(*versions):
    return Machine(
        claim="job",
        name="vm",
        namespace="default",
        addresses=(),
        ssh="",
        pod="pod",
        config=CONFIG,
        client=Claims(*versions),
    )


BOOTS = claim(BOUND, condition("AgentConnected", "False", "AgentNotConnected"))
CONNECTED = claim(BOUND, condition("AgentConnected", "True", "AgentConnected"))


async def test_a_command_waits_for_the_guest_agent_and_one_that_fails_raises_its_result(
    monkeypatch,
):
    result = CommandResult(exit_code=3, errors=b"no such file\n")

    async def run(_config, pod, command, typed):
        assert (pod.namespace, pod.name, command, typed) == ("default", "pod", ["cat"], b"x")
        return result

    monkeypatch.setattr(claims.commands, "run", run)
    with pytest.raises(CommandError, match="cat has ended with exit code 3: no such file") as error:
        await machine(BOOTS, BOOTS, CONNECTED).run(["cat"], typed=b"x")
    assert error.value.result is result
    assert await machine(CONNECTED).run(["cat"], typed=b"x", check=False) is result


async def test_a_command_for_a_machine_that_has_ended_is_an_error():
    ended = claim(BOUND, condition("Ready", "False", "MachineEnded"))
    with pytest.raises(ClaimError, match="claim job: because"):
        await machine(BOOTS, ended).run(["cat"])


async def test_a_command_for_a_guest_without_an_agent_is_an_error(monkeypatch):
    monkeypatch.setattr(claims, "AGENT_SECONDS", 0.01)
    monkeypatch.setattr(claims, "next_version", lambda *_: asyncio.sleep(60))
    with pytest.raises(ClaimError, match="does the image run one"):
        await machine(BOOTS).run(["cat"])
