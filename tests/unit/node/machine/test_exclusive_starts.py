"""When machines of which two must never run may start."""

from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.api.errors import NotFound, Unavailable
from corral.node.hypervisor import StartError
from corral.node.machine.exclusive_starts import ExclusiveStarts
from corral.node.state.machine_record import Record

RECORD = Record(namespace="default", instance="vm", uid="u", pod="p", pod_uid="q", exclusive=True)
POD = {"metadata": {"name": "p", "uid": "q"}}


class Client:
    def __init__(self, answer):
        self.answer = answer

    async def get(self, _view, _name, _namespace):
        if isinstance(self.answer, Exception):
            raise self.answer
        return msgspec.convert(self.answer, Pod)


def valid(**more):
    return SimpleNamespace(**{"is_valid": True, "lapses": 1} | more)


async def test_a_pod_that_is_there_under_a_valid_lease(tmp_path):
    starts = ExclusiveStarts(Client(POD), valid())
    await starts.confirm(RECORD)
    starts.require(RECORD)


@pytest.mark.parametrize(
    "answer",
    [
        NotFound("gone"),
        Unavailable("away"),
        {"metadata": {"name": "p", "uid": "another"}},
        {"metadata": {**POD["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
async def test_a_pod_that_may_be_replaced_is_not_started(answer):
    starts = ExclusiveStarts(Client(answer), valid())
    with pytest.raises(StartError):
        await starts.confirm(RECORD)
    with pytest.raises(StartError):
        starts.require(RECORD)


async def test_exclusive_machines_start_only_with_a_valid_lease():
    lease = valid()
    starts = ExclusiveStarts(Client(POD), lease)
    await starts.confirm(RECORD)
    lease.is_valid = False
    with pytest.raises(StartError, match="Lease"):
        starts.require(RECORD)
    with pytest.raises(StartError, match="Lease"):
        await starts.confirm(RECORD)


async def test_a_confirmation_from_before_a_lapse_is_void():
    lease = valid()
    starts = ExclusiveStarts(Client(POD), lease)
    await starts.confirm(RECORD)
    lease.lapses += 1
    with pytest.raises(StartError, match="expired"):
        starts.require(RECORD)


async def test_the_removal_of_a_former_machine_of_a_vmi_does_not_stop_its_next_one():
    starts = ExclusiveStarts(Client(POD), valid())
    await starts.confirm(RECORD)
    starts.forget(msgspec.structs.replace(RECORD, pod="before", pod_uid="o"))
    starts.require(RECORD)
    starts.forget(RECORD)
    with pytest.raises(StartError, match="expired"):
        starts.require(RECORD)


@pytest.mark.parametrize(
    ("lease", "record"),
    [
        (None, RECORD),
        (valid(is_valid=False), msgspec.structs.replace(RECORD, exclusive=False)),
    ],
)
async def test_all_others_start(lease, record):
    starts = ExclusiveStarts(Client(NotFound("not requested")), lease)
    await starts.confirm(record)
    starts.require(record)
