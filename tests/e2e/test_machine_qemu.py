"""One real machine: what it runs as, how it ends, who may write what."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest
from tests.console import serial
from tests.real_machine import definition, hypervisor, new_directory, seen

from corral.node.hypervisor import Change, StartError
from corral.node.qemu import accelerator_probe, chroot
from corral.node.qemu.accelerator_probe import run_probe
from corral.node.qemu.hypervisor import CONSOLE_LOG, Qemu

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
async def qemu(tmp_path):
    async with hypervisor(tmp_path) as qemu:
        yield qemu


@pytest.fixture
async def guest(qemu, tmp_path, demo_disk):
    """A guest that begins to boot."""
    guest = await qemu.start(definition(new_directory(tmp_path), demo_disk))
    assert guest.halted
    await guest.resume()
    yield guest
    await guest.release()


@pytest.fixture
async def booted(guest):
    """A guest whose agent has answered, and the stream of its changes."""
    changes = guest.changes()
    await seen(changes, Change.AGENT_CONNECTED)
    return guest, changes


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def descriptors(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


def mode_of(descriptor: Path) -> int:
    """The flags that a descriptor was opened with."""
    info = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text()
    return int(info.split("flags:")[1].split()[0], 8)


async def test_a_guest_boots_in_64_megabytes_with_agent_console_and_power_button(booted):
    guest, changes = booted
    await its_agent_reports_its_address(guest)
    await its_console_log_is_written_by_qemu_itself(guest)
    async with serial(guest) as console:
        await console.types("", "login: $")
    await guest.power_down()
    await seen(changes, Change.POWERED_OFF)
    assert status_of(guest.pid)["State"].startswith(("S", "R", "D"))  # QEMU stays until `quit`
    await guest.destroy()
    await seen(changes, Change.GONE)


async def its_agent_reports_its_address(guest):
    guest_info = None
    async with asyncio.timeout(300):
        while guest_info is None or not any(one.addresses for one in guest_info.interfaces):
            guest_info = await guest.query_guest_info()
            await asyncio.sleep(0.2)
    assert guest_info.interfaces[0].addresses[0] == "10.0.2.15"
    assert guest_info.os


async def its_console_log_is_written_by_qemu_itself(guest):
    open_files = [str(entry.readlink()) for entry in descriptors(guest.pid)]
    [log] = {Path(name) for name in open_files if name.endswith(CONSOLE_LOG)}
    async with asyncio.timeout(300):
        while b"login:" not in log.read_bytes():
            await asyncio.sleep(0.1)


async def test_qemu_has_no_privileges(guest):
    status = status_of(guest.pid)
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    if os.geteuid() == 0:
        assert status["Uid"].split()[0] not in {"0", str(os.getuid())}
        assert status["Groups"].strip() == ""
        assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapInh")} == {"0" * 16}
    assert Path(f"/proc/{guest.pid}/oom_score_adj").read_text().strip() == "500"
    assert (
        "0"
        in Path(f"/proc/{guest.pid}/limits").read_text().split("Max core file size")[1].split()[0]
    )


async def test_qemu_sees_only_programs_of_the_host(guest, qemu, tmp_path):
    assert qemu.facts()["files"] == ("own" if os.geteuid() == 0 else "the host's")
    if os.geteuid() == 0:
        root = Path(f"/proc/{guest.pid}/root")
        places = sorted(f"{each.relative_to(root)}" for each in root.glob("*"))
        assert {"dev", "etc", "usr"} <= set(places)
        assert set(places) <= {"dev", "etc", "proc", *chroot._PROGRAMS}
        files = [
            f"/{each.relative_to(root)}" for each in (root / "proc").rglob("*") if each.is_file()
        ]
        assert files == [f"{chroot.OVERCOMMIT}"]
        assert sorted(each.name for each in (root / "dev").iterdir()) == sorted(chroot._DEVICES)
        assert not (root / "etc/passwd").exists()
        with pytest.raises(OSError, match="Read-only"):
            (root / "usr/new").touch()
        mounts = Path(f"/proc/{guest.pid}/mounts").read_text()
        assert str(tmp_path) not in mounts
        assert "/proc " not in mounts


async def test_qemu_cannot_write_the_image_it_boots_from(guest, demo_disk):
    modes = [
        mode_of(entry)
        for entry in descriptors(guest.pid)
        if entry.exists() and os.path.samestat(entry.stat(), demo_disk.stat())
    ]
    assert modes
    assert {mode & os.O_ACCMODE for mode in modes} == {os.O_RDONLY}


async def test_a_guest_is_adopted_with_its_agent(booted, qemu, tmp_path):
    guest, _ = booted
    pid = guest.pid
    await guest.release()
    [directory] = [entry for entry in tmp_path.iterdir() if entry.is_dir()]
    found = await qemu.find(directory)
    assert found is not None
    assert found.pid == pid
    assert not found.halted
    changes = found.changes()
    await seen(changes, Change.RESUMED)
    await seen(changes, Change.AGENT_CONNECTED)
    with pytest.raises(StartError, match="already runs for this VMI"):
        await qemu.start(definition(directory, tmp_path / "unused"))
    await found.destroy()
    await seen(changes, Change.GONE)
    await found.release()
    assert await qemu.find(directory) is None


async def test_a_disk_of_another_format_fails_with_qemus_message(qemu, tmp_path, demo_disk):
    broken = definition(new_directory(tmp_path), demo_disk)
    (broken.directory / "root.qcow2").write_bytes(b"this is no qcow2 file")
    with pytest.raises(StartError) as refused:
        await qemu.start(broken)
    assert refused.value.reason == "StartFailed"
    assert "qcow2" in refused.value.message
    assert await qemu.find(broken.directory) is None


async def test_a_missing_qemu_is_named(tmp_path, demo_disk):
    qemu = Qemu(tmp_path, program="qemu-system-nonesuch")
    await qemu.prepare()
    assert "not installed" in qemu.facts()["reason"]
    with pytest.raises(StartError) as refused:
        await qemu.start(definition(new_directory(tmp_path), demo_disk))
    assert refused.value.reason == "QemuNotFound"
    assert "apt install" in refused.value.hint


async def test_the_accelerator_probe_boots_a_guest(tmp_path):
    path = shutil.which("qemu-system-x86_64")
    works, reason = await run_probe(path, "tcg", seconds=120)
    assert works, reason
    works, reason = await run_probe(path, "nonesuch")
    assert not works
    assert "nonesuch" in reason


async def test_a_hanging_guest_fails_the_accelerator_probe(tmp_path):
    hangs = tmp_path / "qemu"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(hangs.stat().st_mode | stat.S_IXUSR | stat.S_IXOTH)
    tmp_path.chmod(0o711)
    works, reason = await run_probe(str(hangs), "kvm", seconds=0.3)
    assert not works
    assert reason


async def test_the_result_of_the_probe_is_cached_for_this_boot_and_qemu(tmp_path, monkeypatch):
    qemu = Qemu(tmp_path)
    await qemu.prepare()
    facts = qemu.facts()
    assert facts["accelerator"] in {"tcg", "kvm"}
    monkeypatch.setattr(accelerator_probe, "_kvm_works", None)  # nobody asks again
    again = Qemu(tmp_path)
    await again.prepare()
    assert again.facts() == facts
