"""The limits of one machine, and the events where they cannot be enforced."""

import asyncio
import errno
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Background
from corral.node.hypervisor import StartError
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import MemoryLimitTooLow
from corral.node.machine.resource_limits import MachineLimits
from corral.node.state import machine_record as records
from corral.node.state.facts import Facts, State
from corral.node.state.machine_record import Record
from corral.node.state.machine_state import MachineState

pytestmark = pytest.mark.looptime
BOUNDS = Bounds(cpu_nanos=300_000_000, memory_bytes=64 << 20)
NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "p", "pod_uid": "p"}


class Limits:
    """Does what tests say, where a real one would act on processes."""

    def __init__(self):
        self.error = None
        self.fresh = []
        self.over = None
        self.out_of_memory = False
        self.groups = ["/sys/fs/cgroup/corral-u"]
        self.cleared = None
        self.lifted = None

    async def apply(self, _uid, _pid, _bounds, *, fresh, on_exceeded):
        self.fresh.append(fresh)
        self.over = on_exceeded
        if self.error is not None:
            raise self.error

    async def cgroup_paths(self, _uid, _pid, _bounds):
        return self.groups

    async def lift(self, _uid, groups):
        self.lifted = groups

    async def was_oom_killed(self, groups):
        return self.out_of_memory and tuple(groups) == tuple(self.groups)

    async def remove(self, _uid, groups):
        self.cleared = groups


@pytest.fixture
def limits():
    return Limits()


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def state(tmp_path, recorded):
    recorder = SimpleNamespace(
        changed=lambda: None, pod_event=lambda *event: recorded.append(event), vmi_event=None
    )
    record = Record(bounds=BOUNDS, **NAMED)
    return MachineState(record, tmp_path, recorder=recorder, step=recorded.append)


@pytest.fixture
def fence(state, limits):
    return MachineLimits(state, limits)


GUEST = SimpleNamespace(pid=4711, halted=True)


async def test_a_new_guest_is_limited_before_it_runs(fence, limits, recorded):
    await fence.apply(GUEST)
    assert limits.fresh == [True]
    assert recorded == ["bounded"]
    assert fence.processors == 0.3


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (OSError(errno.EROFS, "Read-only file system"), "LimitsNotSet", "Read-only"),
        (
            MemoryLimitTooLow(64 << 20, 70 << 20),
            "MemoryLimitTooLow",
            "64 MiB, is less than the 70 MiB",
        ),
    ],
)
async def test_a_guest_that_cannot_be_limited_is_not_started(fence, limits, error, reason, words):
    limits.error = error
    with pytest.raises(StartError, match=words) as refused:
        await fence.apply(GUEST)
    assert refused.value.reason == reason


@pytest.mark.parametrize(("nanos", "starts"), [(10_000_000, True), (9_000_000, False)])
async def test_a_machine_with_a_too_low_limit_is_not_started(state, limits, nanos, starts):
    state.record = msgspec.structs.replace(state.record, bounds=Bounds(cpu_nanos=nanos))
    fence = MachineLimits(state, limits)
    if starts:
        await fence.apply(GUEST)
        return
    with pytest.raises(StartError, match="limit of the pod, 9m, is too little") as refused:
        await fence.apply(GUEST)
    assert refused.value.lasting
    assert not limits.fresh
    await fence.reapply(GUEST)
    assert limits.fresh == [False], "one that runs is bounded"


async def test_limits_follow_those_of_a_resized_pod(fence, limits, state):
    more = Bounds(cpu_nanos=600_000_000, memory_bytes=128 << 20)
    await fence.change(more, GUEST)
    assert state.record.bounds == more
    assert limits.fresh == [False]
    await fence.change(more, GUEST)
    assert limits.fresh == [False], "it has them"
    unlimited = MachineLimits(state, None)
    await unlimited.change(BOUNDS, GUEST)
    assert state.record.bounds == more


async def test_a_running_guest_that_cannot_be_limited_runs_on_and_is_reported(
    fence, limits, recorded
):
    limits.error = OSError(errno.EROFS, "Read-only file system")
    await fence.reapply(GUEST)
    assert [event[:2] for event in recorded] == [("Warning", "LimitsNotSet")]
    limits.error = ProcessLookupError()
    await fence.reapply(GUEST)
    assert len(recorded) == 1
    assert limits.fresh == [False, False]


async def test_limits_are_retried_until_they_can_be_set(fence, limits, recorded):
    limits.error = OSError(errno.EROFS, "Read-only file system")
    await fence.reapply(GUEST)
    async with Background() as tasks:
        fence.guard(tasks, GUEST)
        await asyncio.sleep(25)
        assert limits.fresh == [False] * 2
        limits.error = None
        await asyncio.sleep(3600)
    assert limits.fresh == [False] * 3
    assert recorded[-1] == "bounded"


async def test_a_new_guest_that_ended_before_its_limits_has_failed_to_start(fence, limits):
    limits.error = ProcessLookupError()
    with pytest.raises(StartError, match="has ended"):
        await fence.apply(GUEST)


async def test_exceeded_memory_during_a_hang_is_reported(state, limits):
    alarm = asyncio.Event()
    fence = MachineLimits(state, limits, alarm.set)
    await fence.apply(GUEST)
    assert not fence.record_exceeded()
    limits.over()
    assert alarm.is_set()
    assert fence.record_exceeded()
    assert state.record.out_of_memory
    await fence.apply(GUEST)  # another one
    assert not fence.record_exceeded()


async def test_a_machine_over_its_memory_limit_is_killed(fence, limits, state):
    ended = asyncio.Event()

    async def destroy():
        ended.set()

    await fence.apply(GUEST)
    async with Background() as tasks, asyncio.timeout(60):
        fence.guard(tasks, SimpleNamespace(destroy=destroy))
        await asyncio.sleep(1)
        assert not ended.is_set()
        limits.over()
        await ended.wait()
    assert state.facts.out_of_memory


async def test_an_oom_kill_is_detected_at_the_end(fence, limits):
    facts = Facts(state=State.RUNNING)
    await fence.apply(GUEST)
    assert await fence.add_outcome(facts) == facts
    limits.out_of_memory = True
    assert (await fence.add_outcome(facts)).out_of_memory
    decided = replace(facts, message="It has shut down.", outcome="any")
    assert await fence.add_outcome(decided) == decided


async def test_cgroups_are_recorded_before_use_and_found_at_the_end(fence, limits, state):
    on_record = []

    async def apply(*_, **__):
        on_record.append(records.read(state.directory).groups)

    limits.apply = apply
    await fence.apply(GUEST)
    await fence.reapply(GUEST)
    assert on_record == [("/sys/fs/cgroup/corral-u",)] * 2
    limits.out_of_memory = True
    record = records.read(state.directory)
    later = MachineLimits(MachineState(record, state.directory, recorder=None, step=print), limits)
    assert (await later.add_outcome(Facts())).out_of_memory
    await later.remove()
    assert limits.cleared == ("/sys/fs/cgroup/corral-u",)


async def test_without_a_memory_limit_nothing_is_killed(state, limits):
    state.record = Record(bounds=Bounds(cpu_nanos=10**8), **NAMED)
    limits.out_of_memory = True
    fence = MachineLimits(state, limits)
    await fence.apply(GUEST)
    assert not (await fence.add_outcome(Facts())).out_of_memory


async def test_a_machine_without_limits_gets_those_of_its_resized_pod(state, limits):
    state.record = Record(**NAMED)
    unlimited = MachineLimits(state, limits)
    await unlimited.apply(GUEST)
    assert limits.fresh == []
    await unlimited.change(BOUNDS, GUEST)
    assert records.read(state.directory).bounds == BOUNDS
    assert limits.fresh == [False]
    assert unlimited.processors == 0.3
    limits.out_of_memory = True
    assert (await unlimited.add_outcome(Facts())).out_of_memory


@pytest.mark.parametrize("bounds", [Bounds(), BOUNDS])
async def test_without_limits_or_methods_nothing_is_done(state, limits, bounds):
    state.record = Record(bounds=bounds, **NAMED)
    fence = MachineLimits(state, None if bounds else limits)
    await fence.apply(GUEST)
    await fence.reapply(GUEST)
    await fence.wake()
    fence.release()
    assert await fence.add_outcome(Facts()) == Facts()
    await fence.remove()
    assert fence.processors == float("inf")
    assert not limits.fresh


async def test_cpu_limits_are_released_before_a_guest_is_stopped(fence, limits):
    async def destroy():
        assert limits.lifted == tuple(limits.groups)
        limits.lifted = "destroyed"

    await fence.apply(GUEST)
    await fence.destroy(SimpleNamespace(destroy=destroy))
    assert limits.lifted == "destroyed"
