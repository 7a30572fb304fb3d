"""What the probe remembers, and how it fails."""

import os
import select
import subprocess
import sys

import pytest

from corral.node.qemu import accelerator_probe
from corral.node.qemu.accelerator_probe import CACHE, find_accelerator
from corral.node.qemu.domain import Accelerator


@pytest.fixture
def program(tmp_path):
    """Something that answers ``--version`` as QEMU does, and can do nothing else."""
    path = tmp_path / "qemu"
    path.write_text("#!/bin/sh\necho 'QEMU emulator version 9.9 (Test)'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tried(monkeypatch):
    """The probes that were run; KVM seems to be there, and works."""
    runs = []

    async def run_probe(path, accelerator, *, as_root):
        runs.append(accelerator)
        return True, "a guest booted"

    monkeypatch.setattr(accelerator_probe, "_obstacle", lambda: "")
    monkeypatch.setattr(accelerator_probe, "_only_root", lambda: False)
    monkeypatch.setattr(accelerator_probe, "run_probe", run_probe)
    return runs


async def test_results_of_the_probe_are_cached(tmp_path, program, tried):
    first = await find_accelerator(tmp_path, str(program))
    assert first.accelerator is Accelerator.KVM
    assert first.version == "9.9 (Test)"
    assert await find_accelerator(tmp_path, str(program)) == first
    assert tried == ["kvm"]


async def test_machine_types_are_listed_with_their_aliases(tmp_path, program, tried):
    program.write_text(
        "#!/bin/sh\n"
        'case $1 in --version) echo "QEMU emulator version 9.9"; exit;; esac\n'
        'echo "Supported machines are:"\n'
        'echo "microvm              microvm (i386)"\n'
        'echo "pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-9.9)"\n'
        'echo "pc-i440fx-9.9        Standard PC (i440FX + PIIX, 1996) (default)"\n'
        'echo "q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-9.9)"\n'
        'echo "pc-q35-9.9           Standard PC (Q35 + ICH9, 2009)"\n'
        'echo "pc-q35-2.4           Standard PC (Q35 + ICH9, 2009) (deprecated)"\n'
    )
    found = await find_accelerator(tmp_path, str(program))
    assert found.version == "9.9"
    assert found.machine_types == {
        "pc": "pc-i440fx-9.9",
        "pc-i440fx-9.9": "pc-i440fx-9.9",
        "q35": "pc-q35-9.9",
        "pc-q35-9.9": "pc-q35-9.9",
        "pc-q35-2.4": "pc-q35-2.4",
    }
    assert await find_accelerator(tmp_path, str(program)) == found, "from the cache"


@pytest.mark.parametrize("change", ["boot", "program", "cache"])
async def test_a_change_of_the_host_repeats_the_probe(
    tmp_path, program, tried, change, monkeypatch
):
    await find_accelerator(tmp_path, str(program))
    if change == "boot":
        monkeypatch.setattr(accelerator_probe, "boot_id", lambda: "another")
    elif change == "program":
        program.write_text(program.read_text() + "# newer\n")
    else:
        (tmp_path / CACHE).write_bytes(b"\xff torn")
    await find_accelerator(tmp_path, str(program))
    assert tried == ["kvm", "kvm"]


async def test_a_failed_probe_means_emulation(tmp_path, program, monkeypatch):
    async def fails(path, accelerator, *, as_root):
        raise FileNotFoundError("setpriv")

    monkeypatch.setattr(accelerator_probe, "_obstacle", lambda: "")
    monkeypatch.setattr(accelerator_probe, "_only_root", lambda: False)
    monkeypatch.setattr(accelerator_probe, "run_probe", fails)
    finding = await find_accelerator(tmp_path, str(program))
    assert finding.accelerator is Accelerator.TCG
    assert "setpriv" in finding.reason


@pytest.mark.parametrize("lacks", ["library", "interpreter"])
async def test_results_with_an_incomplete_qemu_are_not_cached(tmp_path, monkeypatch, lacks):
    """A package is unpacked file by file, and the program may be there before its libraries."""

    async def run_probe(path, accelerator, *, as_root):
        works = (tmp_path / "library").exists()
        return works, "a guest booted" if works else "cannot open shared object file"

    monkeypatch.setattr(accelerator_probe, "_obstacle", lambda: "")
    monkeypatch.setattr(accelerator_probe, "_only_root", lambda: False)
    monkeypatch.setattr(accelerator_probe, "run_probe", run_probe)
    program, interpreter = tmp_path / "qemu", tmp_path / "interpreter"
    program.write_text(f"#!{interpreter}\n. {tmp_path}/library\n")
    program.chmod(0o755)
    if lacks == "library":
        interpreter.symlink_to("/bin/sh")
    half = await find_accelerator(tmp_path, str(program))
    assert (half.accelerator, half.is_whole) == (Accelerator.TCG, False)
    if lacks == "interpreter":
        interpreter.symlink_to("/bin/sh")
    (tmp_path / "library").write_text("echo QEMU emulator version 9.9\n")
    assert (await find_accelerator(tmp_path, str(program))).accelerator is Accelerator.KVM


async def test_a_result_that_cannot_be_cached_is_returned(program, tmp_path, tried):
    nowhere = tmp_path / "missing"
    assert (await find_accelerator(nowhere, str(program))).accelerator is Accelerator.KVM


async def test_without_qemu_there_is_no_probe(tmp_path, tried):
    finding = await find_accelerator(tmp_path, "qemu-system-nonesuch")
    assert "not installed" in finding.reason
    assert tried == []


def test_a_missing_dev_kvm_is_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(accelerator_probe, "KVM", tmp_path / "kvm")
    assert "no /dev/kvm" in accelerator_probe._obstacle()


@pytest.mark.parametrize(
    ("outcome", "advice"),
    [((True, "a guest booted"), "chmod 660"), ((False, "did not boot within 2 s"), "within 2 s")],
)
async def test_root_is_advised_to_chmod_the_device_only_if_that_helps(
    monkeypatch, tmp_path, program, outcome, advice
):
    async def run_probe(path, accelerator, *, as_root):
        assert as_root
        return outcome

    (tmp_path / "kvm").touch(0o600)
    monkeypatch.setattr(accelerator_probe, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(accelerator_probe.os, "geteuid", lambda: 0)
    monkeypatch.setattr(accelerator_probe, "run_probe", run_probe)
    finding = await find_accelerator(tmp_path, str(program))
    assert finding.accelerator is Accelerator.TCG
    assert advice in finding.reason


def test_other_users_are_advised_how_to_open_the_device(monkeypatch, tmp_path):
    (tmp_path / "kvm").touch(0o600)
    monkeypatch.setattr(accelerator_probe, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(accelerator_probe.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(accelerator_probe.os, "access", lambda *_: False)
    assert f"chgrp kvm {tmp_path}/kvm; chmod 660" in accelerator_probe._obstacle()


def test_a_probe_ends_when_its_manager_is_killed(tmp_path):
    """A guest that hangs under KVM would run for ever: only its manager knew of it."""
    hung, pid_file = tmp_path / "hung", tmp_path / "pid_file"
    os.mkfifo(pid_file)
    hung.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 60\n")
    hung.chmod(0o755)
    code = (
        "import asyncio, sys; from corral.node.qemu.accelerator_probe import run_probe; "
        "asyncio.run(run_probe(sys.argv[1], 'kvm', as_root=True, seconds=60))"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", code, hung]) as manager:
        probe_of_it = os.pidfd_open(int(pid_file.read_text()))
        try:
            manager.kill()
            assert select.select([probe_of_it], [], [], 60)[0], "the probe lives on"
        finally:
            os.close(probe_of_it)
