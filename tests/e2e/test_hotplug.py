"""Disks that are plugged into real guests and taken out again, and media of their CD-ROM drives."""

import asyncio
import fcntl
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.e2e.test_saved_memory import save
from tests.real_machine import definition, hypervisor, new_directory

from corral.api.kinds.vmi.hotplug import HotplugDisk, hotplug_disks
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.node.hypervisor import Change, Drive, GuestError, Layer, Memory, StartError
from corral.node.images import qcow
from corral.node.qemu.guest import QemuGuest
from corral.node.qemu.monitor import Monitor
from corral.node.qemu.plugs import QemuPlugs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MEGABYTE = 1 << 20
PATIENCE = 300
"""Seconds; much more than anything takes."""


@pytest.fixture
async def qemu(tmp_path):
    async with hypervisor(tmp_path) as qemu:
        yield qemu


@pytest.fixture
async def following():
    """Follows guests as a machine does, which is how their disks are known to have gone."""
    tasks = []

    async def follow(guest: QemuGuest) -> None:
        up = asyncio.Event()

        async def listen() -> None:
            async for change in guest.changes():
                if change is Change.AGENT_CONNECTED:
                    up.set()

        tasks.append(asyncio.create_task(listen()))
        async with asyncio.timeout(PATIENCE):
            await up.wait()

    yield follow
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def machine(qemu, tmp_path, demo_disk, following):
    """Boots a machine, and returns it with its definition."""
    guests = []

    async def boot(**spec):
        wanted = definition(new_directory(tmp_path), demo_disk, **spec)
        guest = await qemu.start(wanted)
        guests.append(guest)
        await guest.resume()
        await following(guest)
        return guest, wanted.vmi

    yield boot
    for guest in guests:
        await guest.release()


def plug(volume: str, bus: str) -> HotplugDisk:
    """A disk that comes and goes, and shows a claim."""
    disk = {"name": volume, "disk": {"bus": bus}, "serial": volume}
    source = {"claimName": f"claim.of.{volume}", "hotpluggable": True}
    spec = {
        "domain": {"devices": {"disks": [disk]}},
        "volumes": [{"name": volume, "persistentVolumeClaim": source}],
    }
    return hotplug_disks(msgspec.convert(spec, Spec))[volume]


def raw(path: Path, content: bytes) -> Drive:
    path.write_bytes(content)
    os.truncate(path, 8 * MEGABYTE)
    return Drive(volume=path.stem, path=path, format="raw", ephemeral=False)


async def shell(guest, command: str) -> str:
    finished = await guest.agent.run(["/bin/sh", "-c", command])
    return (finished.output + finished.errors).decode()


async def disk_of(guest, serial: str) -> str:
    """The name in the guest of the disk with a serial number."""
    look = (
        f"for d in /sys/block/*; do grep -qs {serial} $d/serial $d/device/vpd_pg80"
        " && echo ${d##*/}; done"
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := (await shell(guest, look)).strip()):
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(await shell(guest, "lsmod; ls /sys/block; ps; dmesg | tail -30"))
    return found


async def gone(plugs, volume: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while volume in await plugs.recover():
            await asyncio.sleep(0.05)


async def test_data_on_a_plugged_disk_is_there_for_the_next_guest(machine, tmp_path):
    (one, vmi), (other, _) = await machine(), await machine()
    for bus in ("scsi", "virtio"):
        drives = {"data": raw(tmp_path / f"{bus}.img", b"from the host")}
        await one.plugs.plug(vmi, plug("data", bus), drives)
        assert await one.plugs.recover() == {"data": "claim.of.data"}
        name = await disk_of(one, "data")
        assert await shell(one, f"head -c 13 /dev/{name}") == "from the host"
        await shell(one, f"echo from a guest | dd of=/dev/{name} conv=fsync; sync")

        with pytest.raises(GuestError, match="lock"):
            await other.plugs.plug(vmi, plug("data", bus), drives)
        assert await other.plugs.recover() == {}

        await one.plugs.unplug("data", "claim.of.data")
        await gone(one.plugs, "data")
        await other.plugs.plug(vmi, plug("data", bus), drives)
        name = await disk_of(other, "data")
        assert await shell(other, f"head -c 12 /dev/{name}") == "from a guest"
        await other.plugs.unplug("data", "claim.of.data")
        await gone(other.plugs, "data")


async def test_plugged_disks_stay_when_a_guest_reboots(machine, tmp_path):
    guest, vmi = await machine()
    for volume, bus in (("one", "virtio"), ("two", "scsi")):
        drives = {volume: raw(tmp_path / f"{volume}.img", volume.encode())}
        await guest.plugs.plug(vmi, plug(volume, bus), drives)
        await disk_of(guest, volume)
    booted = await shell(guest, "cat /proc/sys/kernel/random/boot_id")
    await guest.reset()
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.sleep(0.5)
            with suppress(GuestError, TimeoutError):  # what is asked meanwhile may be lost
                async with asyncio.timeout(5):
                    if await shell(guest, "cat /proc/sys/kernel/random/boot_id") != booted:
                        break
    assert {await disk_of(guest, "one"), await disk_of(guest, "two")} == {"vdb", "sda"}
    assert await guest.plugs.recover() == {"one": "claim.of.one", "two": "claim.of.two"}


async def test_disks_are_plugged_into_one_guest_until_it_has_no_free_port(machine, tmp_path):
    guest, vmi = await machine()
    await a_clone_is_plugged_in_with_all_its_layers(guest, vmi, tmp_path)
    await a_suspended_guest_releases_a_disk_once_it_resumes(guest, vmi, tmp_path)
    await a_disk_without_a_free_port_is_rejected_with_the_alternative(guest, vmi, tmp_path)


async def a_clone_is_plugged_in_with_all_its_layers(guest, vmi, tmp_path):
    base = tmp_path / "base.img"
    base.write_bytes(b"below" + b"\0" * (8 * MEGABYTE - 5))
    overlay = tmp_path / "top.qcow2"
    qcow.create(overlay, 8 * MEGABYTE)
    drive = Drive(volume="data", path=overlay, layers=(Layer(base, "raw"),), ephemeral=False)
    await guest.plugs.plug(vmi, plug("data", "scsi"), {"data": drive})
    name = await disk_of(guest, "data")
    await shell(guest, f"echo -n above | dd of=/dev/{name} bs=1 seek=5 conv=fsync")
    assert await shell(guest, f"head -c 10 /dev/{name}") == "belowabove"
    await guest.plugs.unplug("data", "claim.of.data")
    await gone(guest.plugs, "data")
    assert base.read_bytes()[:10] == b"below" + b"\0" * 5


async def a_suspended_guest_releases_a_disk_once_it_resumes(guest, vmi, tmp_path):
    drives = {"data": raw(tmp_path / "data.img", b"")}
    await guest.plugs.plug(vmi, plug("data", "virtio"), drives)
    await disk_of(guest, "data")
    answered = asyncio.Event()
    guest.plugs.on_released(lambda _volume: answered.set())
    await guest.pause()
    await guest.plugs.unplug("data", "claim.of.data")
    await guest.plugs.unplug("data", "claim.of.data")  # asked once more
    assert await guest.plugs.recover() == {"data": "claim.of.data"}
    assert not answered.is_set()
    await guest.resume()
    async with asyncio.timeout(PATIENCE):
        await answered.wait()
    assert await guest.plugs.recover() == {}


async def a_disk_without_a_free_port_is_rejected_with_the_alternative(guest, vmi, tmp_path):
    for volume in ("one", "two", "three"):
        drives = {volume: raw(tmp_path / f"{volume}.img", b"")}
        await guest.plugs.plug(vmi, plug(volume, "virtio"), drives)
    drives = {"four": raw(tmp_path / "four.img", b"")}
    with pytest.raises(GuestError, match=r"3 ports .* are in use: use bus scsi"):
        await guest.plugs.plug(vmi, plug("four", "virtio"), drives)
    await guest.plugs.plug(vmi, plug("four", "scsi"), drives)
    assert await disk_of(guest, "four") == "sda"
    await guest.plugs.unplug("two", "claim.of.two")
    await gone(guest.plugs, "two")
    drives = {"five": raw(tmp_path / "five.img", b"")}
    await guest.plugs.plug(vmi, plug("five", "virtio"), drives)
    await disk_of(guest, "five")


class Cut(Exception):
    """The manager was killed."""


class Cutting:
    """A monitor whose manager is killed after so many commands."""

    def __init__(self, monitor: Monitor, after: int) -> None:
        self._monitor = monitor
        self._left = after
        self.events = monitor.events
        self.awaited = monitor.awaited

    async def execute(self, *arguments, **named):
        answer = await self._monitor.execute(*arguments, **named)
        self._spend()
        return answer

    async def lend(self, *arguments):
        answer = await self._monitor.lend(*arguments)
        self._spend()
        return answer

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Cut


async def test_a_manager_killed_at_any_step_of_a_plug_leaves_nothing(
    machine, qemu, following, tmp_path
):
    guest, vmi = await machine()
    for bus in ("scsi", "virtio"):
        drives = {"data": raw(tmp_path / f"{bus}.img", b"kept")}
        guest = await plug_and_be_killed(qemu, following, guest, vmi, bus, drives)
    await guest.release()


async def plug_and_be_killed(qemu, following, guest, vmi, bus, drives):
    """Plug a disk in and take it out with managers that are killed; return the adopted guest."""
    one = plug("data", bus)
    cuts = 0
    while cuts < 20:
        try:
            await QemuPlugs(Cutting(guest._monitor, cuts)).plug(vmi, one, drives)
        except Cut:
            cuts += 1
        else:
            break
        await guest.release()
        guest = await qemu.find(guest._directory)
        if await guest.plugs.recover():  # the last step was taken
            break
        nodes = await guest._monitor.execute("query-named-block-nodes", {"flat": True})
        assert not [node for node in nodes if node["node-name"].startswith("plug-")]
    assert cuts >= 4, "there were that many steps"
    await following(guest)
    name = await disk_of(guest, "data")
    assert await shell(guest, f"head -c 4 /dev/{name}") == "kept"

    answered = asyncio.Event()
    guest.plugs.on_released(lambda _volume: answered.set())
    await guest.plugs.unplug("data", one.claim)
    async with asyncio.timeout(PATIENCE):
        await answered.wait()
    for cut in range(20):
        try:
            left = await QemuPlugs(Cutting(guest._monitor, cut)).recover()
        except Cut:
            continue
        assert left == {}
        break
    sets = await guest._monitor.execute("query-fdsets")
    assert not [fd for each in sets for fd in each["fds"] if "plug" in fd.get("opaque", "")]
    return guest


def with_plugs(wanted, drives, *plugs: HotplugDisk):
    """The same machine, started with disks that may be taken out."""
    document = msgspec.to_builtins(wanted.vmi)
    spec = document["spec"]
    for one in plugs:
        spec["domain"]["devices"]["disks"].append(msgspec.to_builtins(one.disk))
        source = {"claimName": one.claim, "hotpluggable": True}
        spec.setdefault("volumes", []).append(
            {"name": one.disk.name, "persistentVolumeClaim": source}
        )
    vmi = msgspec.convert(document, VirtualMachineInstance)
    return replace(wanted, vmi=vmi, drives={**wanted.drives, **drives})


async def test_a_guest_started_with_hotpluggable_disks_can_be_saved(qemu, tmp_path, demo_disk):
    drives = {one: raw(tmp_path / f"{one}.img", b"from the host") for one in ("fast", "slow")}
    wanted = definition(new_directory(tmp_path), demo_disk)
    wanted = with_plugs(wanted, drives, plug("fast", "virtio"), plug("slow", "scsi"))
    guest = await qemu.start(wanted)
    await guest.resume()
    shape = await save(guest, tmp_path / "memory")
    await guest.release()
    memory = Memory(file=tmp_path / "memory", shape=shape)
    restored = await qemu.start(replace(wanted, memory=memory))
    assert not restored.halted
    assert set(await restored.plugs.recover()) == set(drives)
    await restored.destroy()
    await restored.release()


async def test_two_disks_of_one_file_are_rejected_by_its_lock(qemu, tmp_path, demo_disk):
    drives = {"one": raw(tmp_path / "data.img", b"from the host")}
    drives["two"] = drives["one"]
    wanted = definition(new_directory(tmp_path), demo_disk)
    plugs = plug("one", "scsi"), plug("two", "scsi")
    with pytest.raises(StartError, match=r'"(one|two)" is used .*lock'):
        await qemu.start(with_plugs(wanted, drives, *plugs))


def drive(volume: str, bus: str, claim: str = "") -> tuple[dict, list[dict]]:
    """A CD-ROM drive, and the volume that is in it, if there is one."""
    disk = {"name": volume, "cdrom": {"bus": bus}}
    source = {"claimName": claim, "hotpluggable": True}
    return disk, [{"name": volume, "persistentVolumeClaim": source}] if claim else []


def medium(volume: str, claim: str, bus: str = "sata") -> HotplugDisk:
    disk, volumes = drive(volume, bus, claim)
    spec = {"domain": {"devices": {"disks": [disk]}}, "volumes": volumes}
    return hotplug_disks(msgspec.convert(spec, Spec))[volume]


def with_drive(wanted, disk, volumes):
    document = msgspec.to_builtins(wanted.vmi)
    document["spec"]["domain"]["devices"]["disks"].append(disk)
    document["spec"].setdefault("volumes", []).extend(volumes)
    return replace(wanted, vmi=msgspec.convert(document, VirtualMachineInstance))


def read_only(path: Path, content: bytes) -> dict[str, Drive]:
    return {"cd": replace(raw(path, content), volume="cd", read_only=True)}


async def reads(guest, command: str, expected: str) -> None:
    """Until a command in the guest says what is expected of it."""
    try:
        async with asyncio.timeout(PATIENCE):
            while expected not in await shell(guest, command):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(await shell(guest, f"{command}; lsmod; ls /sys/block; dmesg | tail -30"))


HEAD = "modprobe -qa ahci sr_mod; head -c 5 /dev/sr0 2>&1"


async def drive_is_open(guest) -> bool:
    blocks = await guest._monitor.execute("query-block")
    return next(each["tray_open"] for each in blocks if each["qdev"].endswith("tray-cd"))


async def test_a_drive_on_usb_takes_media(qemu, tmp_path, demo_disk):
    wanted = definition(new_directory(tmp_path), demo_disk)
    guest = await qemu.start(with_drive(wanted, *drive("cd", "usb")))
    await guest.resume()
    tree = {"command-line": "info usb"}
    assert "cd" in await guest._monitor.execute("human-monitor-command", tree)
    one = medium("cd", "one.claim", "usb")
    await guest.plugs.plug(wanted.vmi, one, read_only(tmp_path / "1.iso", b"first"))
    assert await guest.plugs.recover() == {"cd": "one.claim"}
    assert not await drive_is_open(guest)
    await guest.plugs.unplug("cd", "one.claim")
    assert await guest.plugs.recover() == {}
    await guest.release()


async def test_a_drive_on_scsi_takes_media(qemu, tmp_path, demo_disk, following):
    wanted = definition(new_directory(tmp_path), demo_disk)
    guest = await qemu.start(with_drive(wanted, *drive("cd", "scsi")))
    await guest.resume()
    await following(guest)
    await reads_inserted_media_and_nothing_after_their_ejection(guest, wanted.vmi, "scsi", tmp_path)
    await guest.release()


async def test_disks_and_media_present_at_the_start_can_be_taken_out(
    qemu, tmp_path, demo_disk, following
):
    drives = {
        "data": raw(tmp_path / "data.img", b"from the host"),
        **read_only(tmp_path / "0.iso", b"first"),
    }
    wanted = with_drive(
        definition(new_directory(tmp_path), demo_disk), *drive("cd", "sata", "one.claim")
    )
    guest = await qemu.start(with_plugs(wanted, drives, plug("data", "scsi")))
    await guest.resume()
    await following(guest)
    assert await guest.plugs.recover() == {"data": "claim.of.data", "cd": "one.claim"}
    await a_disk_is_free_once_unplugged(guest, drives["data"].path)
    await a_locked_tray_is_awaited(guest)
    await reads_inserted_media_and_nothing_after_their_ejection(guest, wanted.vmi, "sata", tmp_path)
    await guest.release()


async def a_disk_is_free_once_unplugged(guest, path):
    with path.open("rb") as disk:
        with pytest.raises(BlockingIOError):
            fcntl.flock(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await guest.plugs.unplug("data", "claim.of.data")
        await gone(guest.plugs, "data")
        fcntl.flock(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def a_locked_tray_is_awaited(guest):
    answered: list[str] = []
    guest.plugs.on_released(answered.append)
    await reads(guest, HEAD, "first")
    # Who has the drive open has it locked.
    await shell(guest, "sleep 1000 </dev/sr0 >/dev/null 2>&1 & echo $! >/tmp/reader")
    await guest.plugs.unplug("cd", "one.claim")
    assert await guest.plugs.recover() == {"cd": "one.claim"}
    assert "cd" not in answered
    await reads(guest, HEAD, "first")
    await shell(guest, "echo 1 >/proc/sys/dev/cdrom/autoeject; kill $(cat /tmp/reader)")
    async with asyncio.timeout(PATIENCE):
        while "cd" not in answered:
            await asyncio.sleep(0.05)
    await guest.plugs.unplug("cd", "one.claim")
    await shell(guest, "echo 0 >/proc/sys/dev/cdrom/autoeject")


async def reads_inserted_media_and_nothing_after_their_ejection(guest, vmi, bus, tmp_path):
    assert await guest.plugs.recover() == {}
    await reads(guest, HEAD, "No medium found")
    first, second = read_only(tmp_path / "1.iso", b"first"), read_only(tmp_path / "2.iso", b"other")
    await guest.plugs.plug(vmi, medium("cd", "one.claim", bus), first)
    assert await guest.plugs.recover() == {"cd": "one.claim"}
    await reads(guest, HEAD, "first")
    await guest.plugs.unplug("cd", "one.claim")
    assert await guest.plugs.recover() == {}
    await guest.plugs.plug(vmi, medium("cd", "two.claim", bus), second)
    assert await guest.plugs.recover() == {"cd": "two.claim"}
    await reads(guest, HEAD, "other")
    await guest.plugs.unplug("cd", "two.claim")
    assert await guest.plugs.recover() == {}
    await reads(guest, HEAD, "No medium found")


async def test_a_manager_killed_during_a_change_of_media_leaves_no_tray_open(
    qemu, tmp_path, demo_disk
):
    wanted = definition(new_directory(tmp_path), demo_disk)
    guest = await qemu.start(with_drive(wanted, *drive("cd", "sata")))
    await guest.resume()  # QEMU gives back no descriptors of one that stands still
    claims = {"one.claim": b"first", "two.claim": b"other"}
    media = {claim: read_only(tmp_path / f"{claim}.iso", what) for claim, what in claims.items()}

    async def cut_at_every_step(change) -> int:
        """Do it with a manager that is killed after each command; as many as it took."""
        nonlocal guest
        for cuts in range(20):
            done = True
            plugs = QemuPlugs(Cutting(guest._monitor, cuts))
            try:
                await change(plugs)
                await plugs.recover()
            except Cut:
                done = False
            await guest.release()
            guest = await qemu.find(guest._directory)
            present = await guest.plugs.recover()
            assert not await drive_is_open(guest)
            nodes = await guest._monitor.execute("query-named-block-nodes", {"flat": True})
            left = {one["node-name"] for one in nodes if one["node-name"].startswith("plug-")}
            assert len(left) == 2 * len(present)
            sets = await guest._monitor.execute("query-fdsets")
            purposes = [fd.get("opaque", "") for each in sets for fd in each["fds"]]
            assert sum("cd" in one for one in purposes) == len(present)
            if done:
                return cuts
            if present:
                await guest.plugs.unplug("cd", present["cd"])
                await guest.plugs.recover()
        raise AssertionError("it never came to its end")

    vmi = wanted.vmi
    for claim, drives in media.items():
        one = medium("cd", claim)
        assert await cut_at_every_step(lambda it: it.plug(vmi, one, drives)) > 5  # noqa: B023
        assert await guest.plugs.recover() == {"cd": claim}
        await guest.plugs.unplug("cd", claim)
        assert await guest.plugs.recover() == {}
    await guest.release()
