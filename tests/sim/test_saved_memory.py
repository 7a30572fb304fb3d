"""Machines whose memory is kept, with hollow guests: killed at every step, and back again."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.sim.test_agent import Host, node

from corral.api.errors import Forbidden, NotFound
from corral.api.kinds.vmi.saved_memory import (
    IDENTITY,
    RESTORE_FROM,
    SAVE_TO,
    Mark,
    mark_annotation,
    mark_of,
    resume_annotations,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.request import Response
from corral.daemon.component_users import PROVISIONER
from corral.node.hollow.hypervisor import HollowGuest
from corral.node.hypervisor import GuestError
from corral.node.storage import Storage
from corral.node.storage.provisioner import controller as provisioner
from corral.node.storage.saved_memory import SavedMemory
from corral.server.app import ApiServer

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

CLAIM = Key("default", "memory")


async def grow(_key, _size):
    """Nobody asks for more."""


@asynccontextmanager
async def host_with_storage(directory):
    """A node, and a claim that has its volume."""
    storage = Storage(directory / "storage")
    async with node(directory, storage=storage, stand_ins=(provisioner(storage, grow),)) as host:
        claim = {
            "metadata": {"name": "memory", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "128Mi"}},
            },
        }
        await host.whole.client.create(PersistentVolumeClaim, claim)

        async def bound():
            return (await claim_of(host)).status.phase == "Bound"

        await host.whole.until(bound)
        yield host


def place_of(host: Host):
    [volume] = host.storage.volumes()
    return volume.directory / "saved"


async def claim_of(host: Host) -> PersistentVolumeClaim:
    return await host.whole.client.get(PersistentVolumeClaim, "memory", "default")


async def machine_of(host: Host, name: str) -> Machine:
    return await host.whole.client.get(Machine, name, "default")


async def create(host: Host, name: str, annotations=None, **spec) -> None:
    document = {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}},
            **spec,
        },
    }
    await host.whole.client.create(Machine, document)


async def in_phase(host: Host, name: str, phase: str) -> Machine:
    async def is_so():
        return (await machine_of(host, name)).status.phase == phase

    await host.whole.until(is_so, 300)
    return await machine_of(host, name)


def guest_of(host: Host, machine: Machine) -> HollowGuest:
    [guest] = [
        guest
        for directory, guest in host.hypervisor.guests.items()
        if directory.name == machine.metadata.uid
    ]
    return guest


async def running(host: Host, name: str, annotations=None, **spec) -> str:
    """Start a machine; answers what its guest alone knows."""
    await create(host, name, annotations, **spec)
    machine = await in_phase(host, name, "Running")
    return guest_of(host, machine).memory


async def up(host: Host, name: str) -> None:
    """Wait until a guest has come up: one that boots has nothing to lose, and is ended at once."""

    async def is_up():
        conditions = (await machine_of(host, name)).status.conditions
        return any((one.type, one.status) == ("AgentConnected", "True") for one in conditions)

    await host.whole.until(is_up, 300)


async def save(host: Host, name: str, claim: str = "memory") -> None:
    patch = {"metadata": {"annotations": {SAVE_TO: claim}}}
    await host.whole.client.patch(Machine, Key("default", name), patch)


async def remove(host: Host, name: str) -> None:
    await host.whole.client.delete(Machine, Key("default", name))

    async def gone():
        try:
            await machine_of(host, name)
        except NotFound:
            return not await host.whole.pods("default")
        return False

    await host.whole.until(gone, 300)


async def saved(host: Host, name: str = "vm") -> Mark:
    """Save a machine, and let it go; answers the mark on its claim."""
    await save(host, name)
    await in_phase(host, name, "Succeeded")
    mark = mark_of(await claim_of(host))
    assert mark is not None
    await remove(host, name)
    return mark


async def event_message(host: Host, name: str, reason: str) -> str:
    """The message of an event, as soon as it is there."""

    async def is_reported():
        return any(one.reason == reason for one in await host.whole.events(name))

    await host.whole.until(is_reported, 300)
    return next(one.message for one in await host.whole.events(name) if one.reason == reason)


async def unmarked(host: Host) -> None:
    async def is_unmarked():
        return mark_of(await claim_of(host)) is None

    await host.whole.until(is_unmarked)


async def test_a_vmi_resumes_from_the_memory_of_an_earlier_one(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        uid = (await machine_of(host, "vm")).metadata.uid
        mark = await saved(host)
        assert (mark.identity, mark.instance) == (uid, "default/vm")
        assert mark.bytes > 0
        assert await running(host, "vm", resume_annotations("memory", mark)) == before
        await event_message(host, "vm", "Restored")
        await unmarked(host)
        assert not place_of(host).exists()


async def test_memory_is_saved_and_restored_where_nodes_write_no_claims(tmp_path, monkeypatch):
    """Kubernetes' NodeRestriction refuses it: the provisioner annotates claims."""
    monkeypatch.setattr(Host, "provisioner", PROVISIONER)
    handle = ApiServer.handle

    async def restricted(server, request):
        is_node = request.user is not None and request.user.name.startswith("system:node:")
        if is_node and request.method != "GET" and "persistentvolumeclaims" in request.path:
            status = Forbidden("node is not allowed to write claims")
            return Response(status=403, body=msgspec.json.encode(status.status()))
        return await handle(server, request)

    monkeypatch.setattr(ApiServer, "handle", restricted)
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        mark = await saved(host)
        await running(host, "vm", resume_annotations("memory", mark))
        await event_message(host, "vm", "Restored")
        await unmarked(host)


async def test_the_clock_of_a_restored_guest_is_set(tmp_path):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        assert guest_of(host, await machine_of(host, "vm")).agent.clock is None
        mark = await saved(host)
        await running(host, "vm", resume_annotations("memory", mark))
        agent = guest_of(host, await machine_of(host, "vm")).agent

        async def is_reported():
            return agent.clock is not None

        await host.whole.until(is_reported)


async def test_a_restored_guest_can_be_saved_again(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        first = await saved(host)
        await running(host, "vm", resume_annotations("memory", first))
        second = await saved(host)
        assert second.identity == first.identity
        assert await running(host, "vm", resume_annotations("memory", second)) == before


@pytest.mark.parametrize("step", ["saving", "written", "sealed", "ended"])
async def test_an_agent_killed_during_a_save_resumes(tmp_path, step):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        host.kill_at = step
        mark = await saved(host)
        assert await host.killed()
        assert await running(host, "vm", resume_annotations("memory", mark)) == before


@pytest.mark.parametrize(
    "step",
    ["defined", "taken out", "prepared", "spawned", "loaded", "unsealed", "resumed", "booted"],
)
async def test_an_agent_killed_during_a_restore_resumes(tmp_path, step):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        mark = await saved(host)
        host.steps.clear()
        host.kill_at = step
        await create(host, "vm", resume_annotations("memory", mark))
        await host.whole.until(host.killed)
        machine = await in_phase(host, "vm", "Running")

        async def is_back():
            return machine.metadata.uid in {one.name for one in host.hypervisor.guests}

        await host.whole.until(is_back)
        assert guest_of(host, machine).memory == before
        await unmarked(host)
        assert not place_of(host).exists()


@pytest.mark.parametrize("step", ["renewed", "given up"])
async def test_a_restore_interrupted_after_another_machine_resumed_starts_fresh(
    tmp_path, monkeypatch, step
):
    def lost(place, _uid):
        place.clear()
        return False

    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        mark = await saved(host)
        monkeypatch.setattr(SavedMemory, "break_seal", lost)
        host.steps.clear()
        host.kill_at = step
        await create(host, "vm", resume_annotations("memory", mark))
        await host.whole.until(host.killed)
        assert "claim memory is empty" in await event_message(host, "vm", "NothingToRestore")
        await in_phase(host, "vm", "Running")


async def pending(host: Host, claim: str) -> None:
    """Wait for the event that a machine waits for a claim."""

    async def is_reported():
        return f"saved to claim {claim}: " in await event_message(host, "vm", "SavePending")

    await host.whole.until(is_reported)


async def test_a_vmi_runs_on_until_the_claim_for_its_memory_exists(tmp_path):
    async with host_with_storage(tmp_path) as host:
        memory = await running(host, "vm")
        await save(host, "vm", "later")
        await pending(host, "later")
        await asyncio.sleep(3600)
        machine = await in_phase(host, "vm", "Running")
        assert guest_of(host, machine).memory == memory
        assert '"later" not found' in await event_message(host, "vm", "SavePending")
        claim = await claim_of(host)
        document = {
            "metadata": {"name": "later", "namespace": "default"},
            "spec": {
                "accessModes": claim.spec.accessModes,
                "resources": {"requests": {"storage": "128Mi"}},
            },
        }
        await host.whole.client.create(PersistentVolumeClaim, document)
        await in_phase(host, "vm", "Succeeded")
        assert "to claim later" in await event_message(host, "vm", "Saved")


@pytest.mark.parametrize("instead", [None, "memory"])
async def test_a_changed_or_withdrawn_request_to_save_is_followed(tmp_path, instead):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        await save(host, "vm", "typo")
        await pending(host, "typo")
        await save(host, "vm", instead)
        if instead:
            await in_phase(host, "vm", "Succeeded")
            assert mark_of(await claim_of(host)) is not None
        else:
            await asyncio.sleep(3600)
            await in_phase(host, "vm", "Running")
            assert "SaveFailed" not in {one.reason for one in await host.whole.events("vm")}


async def test_a_vmi_that_waits_for_the_claim_for_its_memory_can_be_deleted(tmp_path):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        await save(host, "vm", "typo")
        await pending(host, "typo")
        await remove(host, "vm")
        assert "SaveFailed" not in {one.reason for one in await host.whole.events("vm")}


async def test_a_guest_that_cannot_be_saved_is_shut_down_and_leaves_no_annotation(
    tmp_path, monkeypatch
):
    async def refuse(_self, _descriptor):
        raise GuestError("no space")

    monkeypatch.setattr(HollowGuest, "save", refuse)
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        await up(host, "vm")
        await save(host, "vm")
        await in_phase(host, "vm", "Succeeded")
        assert "no space" in await event_message(host, "vm", "SaveFailed")
        assert mark_of(await claim_of(host)) is None
        assert not place_of(host).exists()


async def test_damaged_memory_is_discarded(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        mark = await saved(host)
        (place_of(host) / "memory").write_bytes(b"x" * mark.bytes)
        assert await running(host, "vm", resume_annotations("memory", mark)) != before
        assert "does not match its checksum" in await event_message(host, "vm", "RestoreFailed")
        await unmarked(host)
        assert not place_of(host).exists()


async def test_memory_of_a_different_machine_is_discarded(tmp_path, monkeypatch):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        mark = await saved(host)
        monkeypatch.setattr("corral.node.hollow.hypervisor._SHAPE", ("another",))
        assert await running(host, "vm", resume_annotations("memory", mark)) != before
        assert "unusable" in await event_message(host, "vm", "RestoreFailed")
        await unmarked(host)


async def test_an_annotation_without_stored_memory_starts_a_fresh_guest(tmp_path):
    async with host_with_storage(tmp_path) as host:
        forged = Mark(identity="0cc5347f-1b1d-4331-9aa4-03f51f825d3c")
        annotations = {"metadata": {"annotations": mark_annotation(forged)}}
        await host.whole.client.patch(PersistentVolumeClaim, CLAIM, annotations)
        await running(host, "vm", resume_annotations("memory", forged))
        await event_message(host, "vm", "NothingToRestore")
        await unmarked(host)


async def test_a_missing_claim_is_reported_and_the_vmi_starts_fresh(tmp_path):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm", {RESTORE_FROM: "nothing"})
        assert '"nothing" not found' in await event_message(host, "vm", "RestoreFailed")


async def test_unreachable_memory_is_awaited(tmp_path, monkeypatch):
    async with host_with_storage(tmp_path) as host:
        memory = await running(host, "vm")
        mark = await saved(host)
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "find", lambda *_: None)
            await create(host, "vm", resume_annotations("memory", mark))
            assert "are missing" in await event_message(host, "vm", "RestorePending")
        machine = await in_phase(host, "vm", "Running")
        assert guest_of(host, machine).memory == memory


async def test_memory_is_restored_once_only(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        mark = await saved(host)
        annotations = resume_annotations("memory", mark)
        names = [f"vm-{number}" for number in range(3)]
        await asyncio.gather(*(create(host, name, annotations) for name in names))
        machines = [await in_phase(host, name, "Running") for name in names]
        memories = [guest_of(host, machine).memory for machine in machines]
        assert memories.count(before) == 1


async def test_memory_is_discarded_if_another_machine_has_used_the_disks(tmp_path):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        uid = (await machine_of(host, "vm")).metadata.uid
        folder = tmp_path / "machines" / uid / "volumes"
        folder.mkdir()
        (folder / "root.qcow2").write_bytes(b"the overlay")
        mark = await saved(host)
        host.kill_at = "taken out"
        await create(host, "late", resume_annotations("memory", mark))
        await host.whole.until(host.killed)
        late = (await machine_of(host, "late")).metadata.uid
        overlay = tmp_path / "machines" / late / "volumes" / "root.qcow2"
        assert overlay.read_bytes() == b"the overlay"
        (place_of(host) / "machine.json").rename(place_of(host) / "another.broken")
        await in_phase(host, "late", "Running")
        await event_message(host, "late", "NothingToRestore")
        assert not overlay.exists()


async def test_older_memory_does_not_count_as_the_saved_one(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        older = await saved(host)
        anew = await running(host, "vm", {IDENTITY: older.identity})
        assert anew != before
        host.kill_at = "saving"
        newer = await saved(host)
        assert await host.killed()
        assert await running(host, "vm", resume_annotations("memory", newer)) == anew


async def test_a_claim_with_the_memory_of_another_vmi_is_not_overwritten(tmp_path):
    async with host_with_storage(tmp_path) as host:
        before = await running(host, "vm")
        mark = await saved(host)
        await running(host, "other")
        await save(host, "other")
        assert "holds the memory of default/vm" in await event_message(host, "other", "SavePending")
        await in_phase(host, "other", "Running")
        await remove(host, "other")
        assert await running(host, "vm", resume_annotations("memory", mark)) == before


async def test_a_claim_too_small_for_the_memory_ends_no_guest(tmp_path):
    async with host_with_storage(tmp_path) as host:
        memory = {"resources": {"requests": {"memory": "1Gi"}}, "devices": {}}
        await running(host, "vm", domain=memory)
        await save(host, "vm")
        assert "the claim has 134217728 bytes" in await event_message(host, "vm", "SavePending")
        await in_phase(host, "vm", "Running")


async def test_a_vmi_saved_while_paused_is_restored_paused(tmp_path):
    async with host_with_storage(tmp_path) as host:
        await running(host, "vm")
        await guest_of(host, await machine_of(host, "vm")).pause()

        async def paused():
            conditions = (await machine_of(host, "vm")).status.conditions
            return any(one.type == "Paused" and one.status == "True" for one in conditions)

        await host.whole.until(paused)
        mark = await saved(host)
        await create(host, "vm", resume_annotations("memory", mark))
        await in_phase(host, "vm", "Running")
        await host.whole.until(paused)
