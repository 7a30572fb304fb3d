"""A machine that could not be started is tried again: in growing pauses, or when there is news."""

import asyncio
from types import SimpleNamespace

import pytest

from corral.api.kinds.vmi.volumes import ContainerDisk, EmptyDisk, Volume
from corral.node.hypervisor import StartError
from corral.node.images.error import ImageError
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.drives import DriveError
from corral.node.machine.startup import Startup
from corral.node.volumes import VolumeError

pytestmark = pytest.mark.looptime


@pytest.fixture
def tries():
    """Each try's moment; all fail until ``tries.healed``."""

    class Tries(list):
        healed = False

    return Tries()


@pytest.fixture
def recorded():
    """Events about the pod."""
    return []


@pytest.fixture
def starting(tries, recorded, monkeypatch):
    recorder = SimpleNamespace(
        pod_event=lambda *event: recorded.append(event), vmi_event=lambda *_: None
    )
    state = SimpleNamespace(recorder=recorder, set_trouble=lambda _: None)
    made = Startup(
        state,
        hypervisor=None,
        networking=None,
        boot_slots=None,
        restore=None,
        fork=None,
        limits=None,
        started=None,
        users=lambda *_: "",
        require=lambda _record: None,
        leases=MachineLeases(),
    )

    async def attempt(_vmi, _prepare):
        tries.append(asyncio.get_running_loop().time())
        if not tries.healed:
            volume = Volume(name="keys", empty_disk=EmptyDisk(capacity="1Mi"))
            raise DriveError(volume, VolumeError("missing"))

    monkeypatch.setattr(made, "_attempt", attempt)
    return made


async def test_without_changes_the_backoff_grows(starting, tries, recorded):
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(75)
    assert [round(moment) for moment in tries] == [0, 10, 30, 70]
    assert recorded == [("Warning", "FailedMount", "missing")] * 4
    task.cancel()


async def test_a_failed_image_pull_has_the_events_of_a_kubelet(starting, recorded, monkeypatch):
    """First the error, and then that it is waited (kubelet's images.EnsureImageExists)."""
    image = Volume(name="root", container_disk=ContainerDisk(image="lab/disk:1"))
    troubles = []

    async def attempt(_vmi, _prepare):
        raise DriveError(image, ImageError("ErrImagePull", "no such host"))

    monkeypatch.setattr(starting, "_attempt", attempt)
    monkeypatch.setattr(starting._state, "set_trouble", lambda one: troubles.append(one.reason))
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(9)
    assert troubles == ["ErrImagePull", "ImagePullBackOff"]
    assert recorded == [
        ("Warning", "Failed", 'Failed to pull image "lab/disk:1": no such host'),
        ("Warning", "Failed", "Error: ErrImagePull"),
        ("Normal", "BackOff", 'Back-off pulling image "lab/disk:1"'),
    ]
    task.cancel()


async def test_an_error_without_a_message_gets_one(starting, tries, monkeypatch):
    async def attempt(_vmi, _prepare):
        async with asyncio.timeout(1):
            await asyncio.Event().wait()

    troubles = []
    monkeypatch.setattr(starting, "_attempt", attempt)
    monkeypatch.setattr(starting._state, "set_trouble", troubles.append)
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(2)
    assert [(one.reason, one.message) for one in troubles] == [("StartFailed", "it took too long")]
    task.cancel()


async def test_a_change_ends_the_backoff_at_once(starting, tries):
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(35)
    tries.healed = True
    starting.retry()
    await task
    assert [round(moment) for moment in tries] == [0, 10, 30, 35]


async def test_a_change_resets_the_backoff(starting, tries):
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(35)
    starting.retry()
    await asyncio.sleep(15)
    assert [round(moment) for moment in tries] == [0, 10, 30, 35, 45]
    task.cancel()


async def test_changes_during_an_attempt_are_not_missed(starting, tries, monkeypatch):
    failing = starting._attempt

    async def attempt(vmi, prepare):
        if not tries:
            starting.retry()
        await failing(vmi, prepare)

    monkeypatch.setattr(starting, "_attempt", attempt)
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(5)
    assert [round(moment) for moment in tries] == [0, 0]
    task.cancel()


async def test_a_permanent_error_is_retried_on_changes_only(starting, tries, monkeypatch):
    async def attempt(_vmi, _prepare):
        tries.append(asyncio.get_running_loop().time())
        raise StartError("MemoryLimitTooLow", "too little", lasting=True)

    monkeypatch.setattr(starting, "_attempt", attempt)
    task = asyncio.create_task(starting.run(None, None))
    await asyncio.sleep(7200)
    starting.retry()
    await asyncio.sleep(1)
    assert [round(moment) for moment in tries] == [0, 7200]
    task.cancel()
