"""Checkpoints of hollow machines: killed at every step, and VMIs that start from them."""

import asyncio
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from tests.sim.test_agent import Host, Killed, node
from tests.sim.test_saved_memory import (
    create,
    event_message,
    guest_of,
    in_phase,
    machine_of,
    running,
    up,
)

from corral.api.errors import Invalid, NotFound
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.fork import fork_annotations, fork_of
from corral.api.kinds.vmi.fork_state import forked as forked_condition
from corral.api.kinds.vmi.live_update import queues
from corral.api.kinds.vmi.saved_memory import IDENTITY, START_FROM
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.cli.errors import Problem
from corral.cli.manager.checkpoint import _make, _started
from corral.node.hollow.hypervisor import HollowGuest
from corral.node.hypervisor import GuestError
from corral.node.state import machine_record as records
from corral.node.status.node_status import CHECKPOINTS

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

BASE = Key("default", "base")
MASQUERADE = {
    "domain": {
        "resources": {"requests": {"memory": "64M"}},
        "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
    },
    "networks": [{"name": "default", "pod": {}}],
}


async def request(host: Host, source: str = "vm", name: str = "base") -> None:
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"source": {"kind": "VirtualMachineInstance", "name": source}},
    }
    await host.whole.client.create(Checkpoint, document)


async def finished(host: Host) -> Checkpoint:
    async def is_final():
        return (await found(host)).is_final

    await host.whole.until(is_final, 300)
    return await found(host)


async def found(host: Host) -> Checkpoint:
    return await host.whole.client.get(Checkpoint, "base", "default")


async def source(host: Host) -> str:
    """Start a VMI; answers what its guest alone knows."""
    memory = await running(host, "vm", **MASQUERADE)
    await up(host, "vm")
    return memory


async def forked(host: Host, checkpoint: Checkpoint, name: str) -> str:
    return await running(host, name, fork_annotations(checkpoint), **MASQUERADE)


async def in_state(host: Host, name: str, status: str, reason: str) -> None:
    """Wait until the condition Forked of a VMI is so."""

    async def is_so():
        condition = forked_condition(await machine_of(host, name))
        return condition is not None and (condition.status, condition.reason) == (status, reason)

    await host.whole.until(is_so)


def record_of(host: Host, machine):
    return records.read(host.directory / "machines" / machine.metadata.uid)


def crashed(directory: Path) -> None:
    """End the guest of a machine while no agent runs."""
    (directory / "hollow.json").unlink()


def directories(host: Host) -> list[str]:
    directory = host.directory / "checkpoints"
    return [each.name for each in directory.iterdir()] if directory.exists() else []


async def test_forks_have_the_memory_of_a_source_that_goes_on(tmp_path):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        assert made.has("Ready"), made.status.conditions
        assert (made.status.node_name, made.status.identity) == (
            "node1",
            (await machine_of(host, "vm")).metadata.uid,
        )
        assert await forked(host, made, "fork-1") == memory
        assert await forked(host, made, "fork-2") == memory
        assert "default/vm" in await event_message(host, "fork-1", "Forked")
        await event_message(host, "fork-1", "IdentityRenewed")

        async def counted():
            return (await found(host)).status.forks == 2

        await host.whole.until(counted)
        assert await guest_of(host, await machine_of(host, "vm")).runs()
        await in_phase(host, "vm", "Running")


async def test_a_fork_of_a_machine_that_may_get_more_sockets_starts_with_its_devices(tmp_path):
    async with node(tmp_path) as host:
        memory = await running(host, "vm", {"corral.dev/boot-sockets": "1"}, **MASQUERADE)
        await up(host, "vm")
        await request(host)
        made = await finished(host)
        assert await running(host, "fork", {START_FROM: "base"}, **MASQUERADE) == memory
        assert queues(await machine_of(host, "fork")) == 1
        assert made.status.boot_sockets == 1


async def test_the_node_reports_what_its_checkpoints_occupy(tmp_path):
    async with node(tmp_path) as host:

        async def reported(text):
            found = await host.whole.client.get(Node, "node1")
            return (found.metadata.annotations.get(CHECKPOINTS) or "none").startswith(text)

        await source(host)
        await request(host)
        await finished(host)
        await host.whole.until(lambda: reported("1, "))
        await host.whole.client.delete(Checkpoint, BASE)
        await host.whole.until(lambda: reported("none"))


async def test_the_command_waits_until_a_fork_is_a_machine_of_its_own(tmp_path, capsys):
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        made = await finished(host)
        client = host.whole.client
        document = msgspec.to_builtins(await client.get(Machine, "vm", "default"))
        document |= {"apiVersion": Machine.api_version, "kind": Machine.kind}
        fork = await client.create(Machine, fork_of(document, made))
        assert await _started(client, fork)
        assert f"vmi {fork.metadata.name} is a machine of its own\n" in capsys.readouterr().out
        await client.delete(Checkpoint, BASE)
        fork = await client.create(Machine, fork_of(document, made))
        assert not await _started(client, fork)
        assert f"vmi {fork.metadata.name}: The guest boots, as it cannot" in capsys.readouterr().out


async def test_a_checkpoint_without_its_source_says_so_and_is_made_once_it_is_there(tmp_path):
    async with node(tmp_path) as host:
        await request(host)

        async def reported():
            listed = (await found(host)).status.conditions
            return [(one.status, one.reason) for one in listed] == [("False", "SourceNotFound")]

        await host.whole.until(reported)
        await source(host)
        assert (await finished(host)).has("Ready")


@pytest.mark.parametrize(
    "step", ["checkpoint begun", "stands still", "goes on", "checkpoint written"]
)
async def test_an_agent_killed_during_a_checkpoint_makes_it_anew(tmp_path, step):
    async with node(tmp_path) as host:
        memory = await source(host)
        host.kill_at = step
        await request(host)
        await host.whole.until(host.killed)
        made = await finished(host)
        assert made.has("Ready"), made.status.conditions
        assert await forked(host, made, "fork") == memory
        source_machine = await in_phase(host, "vm", "Running")
        assert guest_of(host, source_machine).memory == memory
        assert host.agent is not None
        [uid] = directories(host)
        assert uid == made.metadata.uid
        assert await guest_of(host, source_machine).runs()
        assert not record_of(host, source_machine).stands_still


@pytest.mark.parametrize(
    "step", ["checkpoint begun", "stands still", "goes on", "checkpoint written"]
)
async def test_an_attempt_whose_source_ended_meanwhile_leaves_no_files(tmp_path, step):
    async with node(tmp_path) as host:
        await source(host)
        host.kill_at = step
        await request(host)
        while host.kill_at:
            await asyncio.sleep(0.01)
        crashed(tmp_path / "machines" / (await machine_of(host, "vm")).metadata.uid)
        assert directories(host)

        async def are_gone():
            return not directories(host)

        await host.whole.until(are_gone)
        assert not (await found(host)).is_final


@pytest.mark.parametrize(
    "step", ["defined", "forked disks", "prepared", "spawned", "loaded", "resumed", "booted"]
)
async def test_an_agent_killed_during_a_fork_resumes(tmp_path, step):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        host.kill_at = step
        await create(host, "fork", fork_annotations(made), **MASQUERADE)
        await host.whole.until(host.killed)
        machine = await in_phase(host, "fork", "Running")

        async def is_back():
            return machine.metadata.uid in {one.name for one in host.hypervisor.guests}

        await host.whole.until(is_back)
        assert guest_of(host, machine).memory == memory
        await event_message(host, "fork", "IdentityRenewed")
        await in_state(host, "fork", "True", "IdentityRenewed")


async def test_a_vmi_boots_without_its_checkpoint(tmp_path):
    async with node(tmp_path) as host:
        await running(host, "fork", {START_FROM: "nothing"}, **MASQUERADE)
        assert "no such checkpoint" in await event_message(host, "fork", "ForkFailed")
        await in_state(host, "fork", "False", "ForkFailed")


async def test_a_vmi_boots_where_the_hypervisor_is_another(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        monkeypatch.setattr("corral.node.hollow.hypervisor._SHAPE", ("another",))
        assert await forked(host, made, "fork") != memory
        assert "checkpoint base" in await event_message(host, "fork", "ForkFailed")


def damage(files: Path, how: str) -> None:
    """Damage the files of a checkpoint."""
    memory, record = files / "memory", files / "checkpoint.json"
    if how == "devices":
        (files / "devices").write_bytes(b"x")
    elif how == "cut":
        os.truncate(memory, memory.stat().st_size // 2)
    elif how == "digest":  # the same as another byte on the disk
        made = msgspec.json.decode(record.read_bytes())
        record.write_bytes(msgspec.json.encode({**made, "digest": "0" * 64}))
    else:
        (files / how).unlink()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("devices", "the state of its devices does not match its checksum"),
        ("cut", "its memory was changed or cut"),
        ("digest", "its memory does not match its checksum"),
        ("memory", "is missing"),
        ("checkpoint.json", "its files are missing"),
    ],
)
async def test_nothing_starts_again_from_a_checkpoint_that_is_found_damaged(tmp_path, how, why):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        assert await forked(host, made, "before") == memory
        host.agent._checkpoints._files.of(made.metadata.uid).close()  # as a new manager has none
        damage(tmp_path / "checkpoints" / made.metadata.uid, how)
        assert await forked(host, made, "first") != memory
        assert why in await event_message(host, "first", "ForkFailed")

        async def is_reported():
            return (await found(host)).has("Failed")

        await host.whole.until(is_reported)
        conditions = {one.type: one for one in (await found(host)).status.conditions}
        for type_, status in (("Ready", "False"), ("Failed", "True")):
            condition = conditions[type_]
            assert (condition.status, condition.reason) == (status, "Damaged")
            assert why in condition.message
        assert why in await event_message(host, "base", "Damaged")
        assert await forked(host, made, "second") != memory
        assert "the checkpoint has failed: " in await event_message(host, "second", "ForkFailed")
        assert directories(host) == []
        assert guest_of(host, await machine_of(host, "before")).memory == memory
        assert (await found(host)).status.forks == 1, "the others have booted"


async def test_a_manager_that_starts_without_the_files_of_a_checkpoint_reports_it(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        made = await finished(host)
        shutil.rmtree(tmp_path / "checkpoints" / made.metadata.uid)
        host.life.cancel()

        async def is_reported():
            return (await found(host)).has("Failed")

        await host.whole.until(is_reported)
        assert not (await found(host)).has("Ready")


async def test_a_vmi_with_other_volumes_boots(tmp_path):
    async with node(tmp_path) as host:
        before = await source(host)
        await request(host)
        made = await finished(host)
        spec = msgspec.to_builtins(MASQUERADE)
        spec["domain"]["devices"]["disks"] = [{"name": "scratch", "disk": {"bus": "virtio"}}]
        spec["volumes"] = [{"name": "scratch", "emptyDisk": {"capacity": "1Mi"}}]
        assert await running(host, "fork", fork_annotations(made), **spec) != before
        assert "its volumes are scratch" in await event_message(host, "fork", "ForkFailed")


async def test_a_vmi_waits_until_its_checkpoint_is_complete(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        memory = await source(host)
        slow = Slow(monkeypatch)
        await request(host)
        await slow.begun.wait()
        uid = (await machine_of(host, "vm")).metadata.uid
        annotations = {START_FROM: "base", IDENTITY: uid}
        await create(host, "fork", annotations, **MASQUERADE)
        assert "not complete yet" in await event_message(host, "fork", "CheckpointPending")
        slow.go_on.set()
        fork = await in_phase(host, "fork", "Running")
        assert guest_of(host, fork).memory == memory


async def test_files_are_removed_with_the_checkpoint(tmp_path):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        await forked(host, made, "fork")
        await host.whole.client.delete(Checkpoint, BASE)

        async def is_gone():
            return directories(host) == []

        await host.whole.until(is_gone)
        assert guest_of(host, await machine_of(host, "fork")).memory == memory
        with pytest.raises(NotFound):
            await found(host)


async def test_a_checkpoint_waits_until_its_source_runs(tmp_path):
    async with node(tmp_path) as host:
        await request(host)
        await asyncio.sleep(60)
        assert not (await found(host)).is_final
        await source(host)
        assert (await finished(host)).has("Ready")


async def test_a_source_goes_on_if_it_cannot_be_saved(tmp_path, monkeypatch):
    async def refuse(self, _descriptor):
        self._state.stopped = True
        raise GuestError("no space")

    monkeypatch.setattr(HollowGuest, "save", refuse)
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        [failed] = [each for each in made.status.conditions if each.type == "Failed"]
        assert (failed.reason, failed.message) == ("CheckpointFailed", "no space")
        assert directories(host) == []
        machine = await in_phase(host, "vm", "Running")
        assert guest_of(host, machine).memory == memory
        assert await guest_of(host, machine).runs()


async def test_a_source_that_cannot_go_on_at_once_does_so_later(tmp_path, monkeypatch):
    tried = []

    async def resume(self):
        if self._state.stopped:
            tried.append(self)
            if len(tried) < 3:
                raise GuestError("no answer")
        await resumes(self)

    resumes = HollowGuest.resume
    monkeypatch.setattr(HollowGuest, "resume", resume)
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        made = await finished(host)
        [failed] = [each for each in made.status.conditions if each.type == "Failed"]
        assert failed.message == "no answer"
        machine = await machine_of(host, "vm")

        async def goes_on():
            return len(tried) == 3 and await guest_of(host, machine).runs()

        await host.whole.until(goes_on)


class Slow:
    """Saves a guest until it is told to go on."""

    def __init__(self, monkeypatch) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        saves, slow = HollowGuest.save, self

        async def save(self, descriptor):
            self._state.stopped = True
            slow.begun.set()
            await slow.go_on.wait()
            await saves(self, descriptor)

        monkeypatch.setattr(HollowGuest, "save", save)


def agents_machine(host: Host, uid: str):
    [machine] = [each for each in host.agent._machines.values() if each.record.uid == uid]
    return machine


async def test_a_machine_is_stopped_while_a_checkpoint_of_it_is_made(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        await source(host)
        slow = Slow(monkeypatch)
        await request(host)
        await slow.begun.wait()
        begun = asyncio.get_running_loop().time()
        await host.whole.client.delete(Machine, Key("default", "vm"))
        [failed] = [
            each for each in (await finished(host)).status.conditions if each.type == "Failed"
        ]
        assert failed.reason in {"NotRunning", "SourceNotFound"}

        async def is_gone():
            return not await host.whole.machines()

        await host.whole.until(is_gone)
        assert asyncio.get_running_loop().time() - begun < 5, "it obeys the power button in 0.5 s"
        assert directories(host) == []


async def test_a_pause_during_a_checkpoint_stays_a_pause(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        await source(host)
        slow = Slow(monkeypatch)
        await request(host)
        await slow.begun.wait()
        vmi = await machine_of(host, "vm")
        pause = asyncio.create_task(agents_machine(host, vmi.metadata.uid).pause())
        await asyncio.sleep(1)
        assert not pause.done()
        slow.go_on.set()
        await pause
        assert (await finished(host)).has("Ready")
        assert not await guest_of(host, vmi).runs()
        assert not record_of(host, vmi).stands_still


async def test_a_paused_machine_is_refused(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        vmi = await machine_of(host, "vm")
        await agents_machine(host, vmi.metadata.uid).pause()
        await request(host)
        [failed] = [
            each for each in (await finished(host)).status.conditions if each.type == "Failed"
        ]
        assert (failed.reason, "unpause" in failed.message) == ("NotRunning", True)
        assert not await guest_of(host, vmi).runs()


async def test_the_command_leaves_no_checkpoint_behind_that_was_refused(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        vmi = await machine_of(host, "vm")
        await agents_machine(host, vmi.metadata.uid).pause()
        with pytest.raises(Problem, match="unpause it"):
            await _make(host.whole.client, BASE, "vm")
        with pytest.raises(NotFound):
            await found(host)


async def test_the_end_of_a_manager_lets_the_guest_go_on(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        await source(host)
        slow = Slow(monkeypatch)
        await request(host)
        await slow.begun.wait()
        uid = (await machine_of(host, "vm")).metadata.uid
        machine = agents_machine(host, uid)
        guest = machine.guest
        assert not await guest.runs()
        host.life.cancel()
        await asyncio.wait([host.life])
        assert await guest.runs()
        assert not machine.record.stands_still
        slow.go_on.set()
        assert (await finished(host)).has("Ready")


async def test_a_manager_that_was_killed_is_followed_by_one_that_lets_the_guest_go_on(
    tmp_path, monkeypatch
):
    """Nothing of the killed one lets it go on, whatever is done while its tasks end."""
    killed = []

    async def resume(self):
        if self._state.stopped and not killed:
            killed.append(self._hypervisor)
            raise Killed
        if self._hypervisor in killed:
            raise GuestError("the manager was killed")
        await resumes(self)

    resumes = HollowGuest.resume
    async with node(tmp_path) as host:
        await source(host)
        vmi = await machine_of(host, "vm")
        monkeypatch.setattr(HollowGuest, "resume", resume)
        await request(host)

        async def goes_on():
            if not killed or host.hypervisor in killed or not host.hypervisor.guests:
                return False
            return await guest_of(host, vmi).runs() and not record_of(host, vmi).stands_still

        await host.whole.until(goes_on, 300)
        assert (await finished(host)).has("Ready")


async def test_what_an_interrupted_attempt_has_left_is_removed(tmp_path, monkeypatch):
    async with node(tmp_path) as host:
        await source(host)
        slow = Slow(monkeypatch)
        await request(host)
        await slow.begun.wait()
        [left] = directories(host)
        await host.whole.client.delete(Checkpoint, BASE)
        host.life.cancel()
        slow.go_on.set()

        async def is_removed():
            return directories(host) == []

        await host.whole.until(is_removed)
        assert left


async def test_a_checkpoint_whose_source_was_made_anew_meanwhile_has_failed(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        host.kill_at = "checkpoint begun"
        await request(host)
        await host.whole.until(host.killed)
        status = {"status": {"sourceUID": "another"}}
        await host.whole.component.patch(Checkpoint, BASE, status, subresource="status")
        made = await finished(host)
        reasons = {each.type: each.reason for each in made.status.conditions}
        assert reasons["Failed"] == "SourceNotFound"


async def test_two_checkpoints_of_one_source_are_made_one_after_the_other(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        for name in ("first", "second"):
            await request(host, name=name)

        async def both():
            found = await host.whole.client.list(Checkpoint, "default")
            assert not any(each.has("Failed") for each in found.items)
            return all(each.has("Ready") for each in found.items)

        await host.whole.until(both)


async def test_a_vmi_that_only_names_a_checkpoint_starts_from_it(tmp_path):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        assert await running(host, "fork", {START_FROM: "base"}, **MASQUERADE) == memory
        assert (
            fork_annotations(made).items()
            <= (await machine_of(host, "fork")).metadata.annotations.items()
        )


async def test_a_name_that_no_checkpoint_can_have_is_refused(tmp_path):
    async with node(tmp_path) as host:
        with pytest.raises(Invalid, match=r"metadata.annotations\[corral.dev/start-from\]"):
            await create(host, "fork", {START_FROM: "../base"}, **MASQUERADE)


async def test_a_machine_whose_address_is_its_own_is_refused(tmp_path):
    async with node(tmp_path) as host:
        spec = {**MASQUERADE, "domain": {**MASQUERADE["domain"]}}
        spec["domain"]["devices"] = {"interfaces": [{"name": "default", "bridge": {}}]}
        await running(host, "vm", **spec)
        await request(host)
        [failed] = [
            each for each in (await finished(host)).status.conditions if each.type == "Failed"
        ]
        assert failed.reason == "NotSupported"
        assert "spec.domain.devices.interfaces[0]" in failed.message
