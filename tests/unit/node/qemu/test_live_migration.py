"""Live migration by QEMU: the order of its commands, and how each failure is seen (by a fake)."""

import asyncio
import os
import socket

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import GuestError, MigrationOptions, Outgoing
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.live_migration import SourceMigration, offer_disks, receive

VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Mi"}}],
        },
    },
    VirtualMachineInstance,
)
NODE = node_of(VMI, "root")
JOB = {"device": f"move-{NODE}"}
COMPLETED_JOB = {"event": "BLOCK_JOB_COMPLETED", "data": JOB}


def status(word):
    return {"event": "MIGRATION", "data": {"status": word}}


MOVES = {
    "blockdev-mirror": [{"event": "BLOCK_JOB_READY", "data": JOB}],
    "migrate": [status("active"), status("pre-switchover")],
    "block-job-cancel": [COMPLETED_JOB],
    "migrate-continue": [status("completed")],
}
"""What QEMU reports after each command of a migration that succeeds."""


class Fake:
    """A monitor: ``events`` follow on commands, ``results`` are their results."""

    def __init__(self, events=None, results=None):
        self.commands = []
        self.arguments = {}
        self.downtimes = []
        self.events = asyncio.Queue()
        self.results = {"query-kvm": {"enabled": True}, **(results or {})}
        self._after = MOVES if events is None else events
        self.migration = SourceMigration(self, os.getpid())

    async def execute(self, command, arguments=None, **_):
        self.commands.append(command)
        self.arguments.setdefault(command, arguments)
        if command == "migrate-set-parameters":
            self.downtimes.append(arguments["downtime-limit"])
        for event in self._after.get(command, ()):
            self.events.put_nowait(event)
            self.migration.on_event(event)
        return self.results.get(command, {})

    async def lend(self, descriptor, command, arguments):
        os.fstat(descriptor)  # open until it is lent
        return await self.execute(command, arguments)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def send(fake, memory, *disks, **options):
    async def open_disk(_volume):
        raise GuestError("nobody connects")

    outgoing = Outgoing(
        memory=memory,
        disks=disks,
        open_disk=open_disk,
        options=MigrationOptions(**options),
        stopped=lambda: fake.commands.append("the guest stands still"),
    )
    await fake.migration.send(VMI, outgoing)


async def test_memory_is_sent_after_the_disks_and_the_target_runs_none_before_them(pair):
    fake = Fake()
    await send(fake, pair[0], "root")
    stopped = "the guest stands still"
    order = [each for each in fake.commands if each in {*MOVES, "getfd", stopped}]
    sent = ["migrate", stopped, "block-job-cancel", "migrate-continue"]
    assert order == ["blockdev-mirror", "getfd", *sent]
    assert fake.arguments["blockdev-mirror"]["copy-mode"] == "write-blocking"
    assert fake.arguments["migrate-continue"] == {"state": "pre-switchover"}
    capabilities = fake.arguments["migrate-set-capabilities"]["capabilities"]
    assert {"capability": "pause-before-switchover", "state": True} in capabilities
    assert pair[0].fileno() == -1, "QEMU's end is the only one"


async def test_an_emulated_guest_is_stopped_before_its_memory_is_sent(pair):
    fake = Fake(results={"query-kvm": {"enabled": False}})
    await send(fake, pair[0], "root")
    stopped = "the guest stands still"
    order = [each for each in fake.commands if each in {*MOVES, "stop", stopped}]
    sent = ["migrate", "block-job-cancel", "migrate-continue"]
    assert order == ["blockdev-mirror", "stop", stopped, *sent]


async def test_a_machine_without_copied_disks_sends_its_memory_alone(pair):
    fake = Fake()
    await send(fake, pair[0], bandwidth=1000, auto_converge=True)
    assert not {"blockdev-add", "blockdev-mirror", "block-job-cancel"} & {*fake.commands}
    assert fake.arguments["migrate-set-parameters"]["max-bandwidth"] == 1000
    capabilities = fake.arguments["migrate-set-capabilities"]["capabilities"]
    assert {"capability": "auto-converge", "state": True} in capabilities


async def test_a_disk_whose_copy_fails_fails_the_migration(pair):
    lost = {"event": "BLOCK_JOB_COMPLETED", "data": {**JOB, "error": "No space left"}}
    fake = Fake({"blockdev-mirror": [lost]})
    with pytest.raises(GuestError, match="the copy of a disk has failed"):
        await send(fake, pair[0], "root")
    assert "migrate" not in fake.commands
    assert pair[0].fileno() == -1, "the target sees the end of its memory"


async def test_a_disk_that_the_vmi_lacks_fails_the_migration(pair):
    fake = Fake()
    with pytest.raises(GuestError, match="the target asks for the disk 'other', which the VMI"):
        await send(fake, pair[0], "root", "other")
    assert not fake.commands
    assert pair[0].fileno() == -1, "the target sees the end of its memory"


async def test_a_migration_that_fails_has_the_reason_of_qemu(pair):
    result = {"query-migrate": {"error-desc": "Unable to write to socket: Broken pipe"}}
    fake = Fake({"migrate": [status("failed")]}, result)
    with pytest.raises(GuestError, match="cannot send its memory: Unable to write to socket"):
        await send(fake, pair[0])


async def test_the_end_of_qemu_fails_the_migration(pair):
    fake = Fake({"migrate": [{"event": "END"}]})
    with pytest.raises(GuestError, match="QEMU has ended"):
        await send(fake, pair[0])


@pytest.mark.looptime
async def test_a_migration_without_progress_is_given_up(pair, looptime):
    fake = Fake({}, {"query-migrate": {"ram": {"remaining": 5}}})
    with pytest.raises(GuestError, match="stuck for 10 seconds"):
        await send(fake, pair[0], progress_seconds=10)
    assert 10 < looptime < 13


@pytest.mark.looptime
async def test_a_migration_that_takes_too_long_is_given_up(pair, looptime):
    fake = Fake({}, {"query-migrate": {}})
    with pytest.raises(GuestError, match="not completed after 30 seconds"):
        await send(fake, pair[0], progress_seconds=1000, completion_seconds_per_gib=30)
    assert 30 < looptime < 33


@pytest.mark.looptime
async def test_a_disk_whose_target_hangs_is_given_up(pair, looptime):
    """The guest's writes wait for their copies."""
    fake = Fake({}, {"query-block-jobs": [{**JOB, "len": 3 << 30, "offset": 5}]})
    with pytest.raises(GuestError, match="stuck for 10 seconds"):
        await send(fake, pair[0], "root", progress_seconds=10)
    assert 10 < looptime < 13
    assert "migrate" not in fake.commands


@pytest.mark.looptime
async def test_the_time_to_complete_grows_with_the_disks_as_they_are_at_first(pair, looptime):
    fake = Fake({}, {"query-block-jobs": [{**JOB, "len": 3 << 30, "offset": 5}]})
    sending = asyncio.ensure_future(send(fake, pair[0], "root", completion_seconds_per_gib=10))
    await asyncio.sleep(5)
    fake.results["query-block-jobs"] = [{**JOB, "len": 9 << 30, "offset": 6 << 30}]
    with pytest.raises(GuestError, match="not completed after 40 seconds"):
        await sending
    assert 40 < looptime < 43


@pytest.mark.looptime
async def test_memory_that_follows_the_disks_is_progress(pair, looptime):
    fake = Fake({}, {"query-block-jobs": [{**JOB, "len": 10, "offset": 10}]})
    sending = asyncio.ensure_future(send(fake, pair[0], "root", progress_seconds=10))
    await asyncio.sleep(8)
    fake.results["query-migrate"] = {"ram": {"remaining": 5}}
    with pytest.raises(GuestError, match="stuck for 10 seconds"):
        await sending
    assert 18 < looptime < 21


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("limit", "allowed"),
    [(900, [20, 40, 80, 160, 320, 640, 900]), (30, [20, 30]), (10, [10])],
)
async def test_a_guest_is_stopped_for_no_longer_than_it_has_to(pair, limit, allowed):
    fake = Fake({}, {"query-migrate": {}})
    with pytest.raises(GuestError, match="not completed"):
        await send(fake, pair[0], completion_seconds_per_gib=30, max_downtime_ms=limit)
    assert fake.downtimes == allowed


async def test_a_guest_that_stays_runs_on_and_is_rid_of_its_mirrors():
    results = {
        "query-migrate": {"status": "pre-switchover"},
        "query-block-jobs": [JOB, {"device": "another"}],
        "query-named-block-nodes": [{"node-name": NODE}, {"node-name": f"move-to-{NODE}"}],
        "query-status": {"status": "finish-migrate"},
    }
    cancelled = {"migrate_cancel": [status("cancelled")], "block-job-cancel": [COMPLETED_JOB]}
    fake = Fake(cancelled, results)
    fake.migration.is_active = True
    await fake.migration.stay()
    assert fake.arguments["block-job-cancel"] == {**JOB, "force": True}
    assert fake.commands.count("block-job-cancel") == 1
    assert fake.arguments["blockdev-del"] == {"node-name": f"move-to-{NODE}"}
    assert fake.commands[-1] == "cont"
    assert not fake.migration.is_active


async def test_a_guest_that_runs_is_not_resumed_again():
    results = {
        "query-migrate": {},
        "query-block-jobs": [],
        "query-named-block-nodes": [],
        "query-status": {"status": "running"},
    }
    fake = Fake({}, results)
    await fake.migration.stay()
    assert not {"migrate_cancel", "cont"} & {*fake.commands}


@pytest.mark.looptime
async def test_a_migration_that_cannot_be_cancelled_is_reported():
    fake = Fake({}, {"query-migrate": {"status": "active"}})
    with pytest.raises(GuestError, match="cannot be cancelled"):
        await fake.migration.stay()


async def test_each_disk_is_offered_under_its_own_name(tmp_path):
    fake = Fake()
    await offer_disks(fake, tmp_path, [NODE])
    assert fake.commands == ["getfd", "nbd-server-start", "block-export-add"]
    export = fake.arguments["block-export-add"]
    assert (export["name"], export["node-name"], export["writable"]) == (NODE, NODE, True)


async def test_nothing_listens_for_a_machine_without_copied_disks(tmp_path):
    fake = Fake()
    await offer_disks(fake, tmp_path, [])
    assert fake.commands == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offers", [True, False])
async def test_disks_are_offered_no_longer_than_memory_comes(pair, offers):
    fake = Fake({"migrate-incoming": [status("active"), status("completed")]})
    await receive(fake, pair[0], offers=offers)
    assert (fake.commands[-1] == "nbd-server-stop") is offers
    assert pair[0].fileno() == -1


async def test_qemu_holds_the_other_end_of_the_stream_while_memory_comes(pair):
    fake = Fake({"migrate-incoming": [status("active"), status("completed")]})
    await receive(fake, pair[0], pair[1], offers=False)
    assert fake.commands[-4:] == ["getfd", "getfd", "migrate-incoming", "closefd"]
    assert fake.arguments["closefd"] == {"fdname": "sender"}
    assert {each.fileno() for each in pair} == {-1}


@pytest.mark.parametrize("end", [status("failed"), {"event": "END"}])
async def test_memory_that_is_not_complete_is_not_received(pair, end):
    fake = Fake({"migrate-incoming": [status("active"), end]})
    with pytest.raises(GuestError, match="cannot receive the guest"):
        await receive(fake, pair[0], offers=True)
