"""Checkpoints of hollow machines: killed at every step, and VMIs that start from them."""

import asyncio
from pathlib import Path

import pytest
from tests.sim.test_agent import Host, node
from tests.sim.test_saved_memory import (
    create,
    event_message,
    guest_of,
    in_phase,
    machine_of,
    running,
    up,
)

from corral.api.errors import NotFound
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.fork import fork_annotations
from corral.api.kinds.vmi.fork_state import forked as forked_condition
from corral.api.kinds.vmi.saved_memory import START_FROM
from corral.api.object import Key
from corral.node.hollow.hypervisor import Hollow, HollowGuest
from corral.node.hypervisor import GuestError

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
        assert (made.status.node, made.status.identity) == (
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
        assert not guest_of(host, await machine_of(host, "vm")).halted
        await in_phase(host, "vm", "Running")


@pytest.mark.parametrize(
    "step", ["checkpoint writer started", "stands still", "goes on", "checkpoint written"]
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


@pytest.mark.parametrize(
    "step", ["checkpoint writer started", "stands still", "goes on", "checkpoint written"]
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


async def test_a_vmi_boots_if_the_checkpoint_is_damaged(tmp_path):
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        (tmp_path / "checkpoints" / made.metadata.uid / "devices").write_bytes(b"x")
        assert await forked(host, made, "fork") != memory
        assert "checksum" in await event_message(host, "fork", "ForkFailed")


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


async def test_a_source_goes_on_if_it_cannot_be_sent(tmp_path, monkeypatch):
    async def refuse(_self, _vmi, outgoing):
        outgoing.memory.close()
        raise GuestError("no space")

    monkeypatch.setattr(HollowGuest, "send", refuse)
    async with node(tmp_path) as host:
        memory = await source(host)
        await request(host)
        made = await finished(host)
        [failed] = [each for each in made.status.conditions if each.type == "Failed"]
        assert (failed.reason, failed.message) == ("CheckpointFailed", "no space")
        assert directories(host) == []
        machine = await in_phase(host, "vm", "Running")
        assert guest_of(host, machine).memory == memory


async def test_a_source_that_cannot_go_on_at_once_does_so_later(tmp_path, monkeypatch):
    tried = []

    async def stay(self):
        tried.append(self)
        if len(tried) < 3:
            raise GuestError("no answer")
        await stays(self)

    stays = HollowGuest.stay
    monkeypatch.setattr(HollowGuest, "stay", stay)
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        made = await finished(host)
        assert made.has("Failed")
        machine = await machine_of(host, "vm")

        async def goes_on():
            return len(tried) == 3 and not guest_of(host, machine).halted

        await host.whole.until(goes_on)


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


async def test_a_name_that_no_checkpoint_has_is_booted_without(tmp_path):
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        made = await finished(host)
        annotations = {**fork_annotations(made), "corral.dev/start-from": "../base"}
        await create(host, "fork", annotations, **MASQUERADE)
        await event_message(host, "fork", "ForkFailed")
        await in_phase(host, "fork", "Running")


async def test_a_source_that_is_paused_before_it_is_sent_stays_paused(tmp_path, monkeypatch):
    async def start(hypervisor, definition):
        if definition.receives:
            await guest_of(host, await machine_of(host, "vm")).pause()
            await asyncio.sleep(1)
        return await starts(hypervisor, definition)

    starts = Hollow.start
    monkeypatch.setattr(Hollow, "start", start)
    async with node(tmp_path) as host:
        await source(host)
        await request(host)
        conditions = (await finished(host)).status.conditions
        [failed] = [each for each in conditions if each.type == "Failed"]
        assert failed.reason == "NotRunning"
        await asyncio.sleep(5)
        conditions = (await machine_of(host, "vm")).status.conditions
        assert [each.status for each in conditions if each.type == "Paused"] == ["True"]


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
