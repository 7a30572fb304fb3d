"""Errors of commands: file and reason in a line or two, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from bench.cluster import free_port

from corral.cli.address_options import BindAddress
from corral.cli.errors import Problem, from_os_error
from corral.cli.main import run
from corral.config import THRESHOLDS, Layout
from corral.daemon.address_ranges import Ranges, load, save
from corral.node.host.proc import acquire_lock
from corral.node.state import machine_record as records


@pytest.fixture
def run_command(capsys):
    """Run a command in this process; return its exit code and output."""

    def run_command(*arguments):
        code = run(list(map(str, arguments)))
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    yield run_command
    structlog.reset_defaults()  # a manager has configured its log, to which later tests would write


def spoil(directory: Path, name: str, how: str) -> None:
    path = directory / name
    if how == "directory":
        path.mkdir()
    else:
        path.write_text("not what it should be")


UP = ["up", "--machine", "hollow"]


def test_an_allocation_ratio_of_zero_is_rejected(run_command, tmp_path):
    code, output = run_command(*UP, "--cpu-allocation-ratio", "0", "--data-dir", tmp_path)
    assert code == 2
    assert "--cpu-allocation-ratio" in output


@pytest.mark.parametrize(
    ("name", "how", "command"),
    [
        ("lock", "directory", UP),
        ("lock", "directory", ["down"]),
        ("pki", "file", UP),
        ("store.sqlite", "file", UP),
        ("images", "file", ["image", "ls"]),
        ("images", "file", UP),
        ("nodes", "file", UP),
    ],
)
def test_an_invalid_data_directory_is_named(run_command, tmp_path, name, how, command):
    spoil(tmp_path, name, how)
    where = ["--bind", f"127.0.0.1:{free_port()}"] if command is UP else []
    code, output = run_command(*command, *where, "--data-dir", tmp_path)
    assert code == 1
    assert output.startswith("error: ")
    assert str(tmp_path / name) in output
    assert "Traceback" not in output


def test_a_range_without_the_addresses_of_machines_is_rejected(run_command, tmp_path):
    save(Layout(tmp_path), Ranges())
    machine = tmp_path / "nodes" / "here" / "machines" / "uid"
    machine.mkdir(parents=True)
    record = records.Record(namespace="a", instance="b", uid="uid", pod="c", pod_uid="d")
    records.write(machine, record)
    code, output = run_command(
        "up", "--new-store", "--pod-cidr", "10.230.0.0/16", "--data-dir", tmp_path
    )
    assert code == 1
    assert "have addresses in 10.244.0.0/16,fd00:10:244::/56" in output
    assert "corral down" in output
    assert load(Layout(tmp_path)) == Ranges()


def test_status_reports_machines_that_run_without_a_manager(run_command, tmp_path):
    machine = tmp_path / "nodes" / "here" / "machines" / "uid"
    machine.mkdir(parents=True)
    record = records.Record(namespace="a", instance="b", uid="uid", pod="c", pod_uid="d")
    records.write(machine, record.started())
    code, output = run_command("status", "--data-dir", tmp_path)
    assert code == 3
    assert "error: no manager runs here\n" in output
    descriptor = acquire_lock(machine)
    assert descriptor is not None
    try:
        code, output = run_command("status", "--data-dir", tmp_path)
    finally:
        os.close(descriptor)
    assert code == 3
    assert "error: no manager runs here, but 1 machine runs on\n" in output
    assert f"corral up --detach --data-dir {tmp_path} takes over" in output


def test_disks_without_names_are_warned_of(run_command, tmp_path):
    disks = tmp_path / "images" / "disks"
    disks.mkdir(parents=True)
    (disks / "sha256-0.raw").touch()
    code, output = run_command("image", "ls", "--data-dir", tmp_path)
    assert code == 0
    assert output.startswith(f"warning: 1 of the disks in {disks} have lost their names: copy what")


def test_a_stray_file_in_the_nodes_directory_is_ignored(run_command, tmp_path):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "stray").write_text("")
    (tmp_path / "lock").write_text("")
    assert run_command("down", "--data-dir", tmp_path) == (
        0,
        "No manager ran; 0 machines shut down.\n",
    )


@pytest.mark.parametrize(("command", "expected"), [("kubeconfig", 1), ("status", 3)])
def test_commands_that_need_a_manager_name_corral_up(run_command, tmp_path, command, expected):
    code, output = run_command(command, "--data-dir", tmp_path)
    assert code == expected
    assert "corral up" in output


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("statsu", "Did you mean 'status'?"),
        ("port-foward", "Did you mean 'port-forward'?"),
        ("describe", "kubectl describe does that."),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_command_is_rejected_with_the_similar_one(run_command, typed, advice):
    code, output = run_command(typed)
    assert code == 2
    assert output.strip().endswith(f"No such command '{typed}'. {advice}".strip())


def test_help_breaks_no_option_value(run_command):
    code, output = run_command("up", "--help")
    assert code == 0
    assert all(each in output for each in THRESHOLDS.split(","))


def test_stop_and_down_without_a_manager_succeed(run_command, tmp_path):
    assert run_command("stop", "--data-dir", tmp_path)[0] == 0
    assert run_command("down", "--data-dir", tmp_path)[0] == 0


def test_a_detached_manager_reports_why_it_did_not_start(tmp_path):
    (tmp_path / "store.sqlite").write_text("not a database, whatever its name says")
    command = [sys.executable, "-m", "corral", "up", "--detach", "--machine", "hollow"]
    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert str(tmp_path / "store.sqlite") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_store_beside_volumes_prevents_the_start(tmp_path):
    volume = tmp_path / "storage" / "volumes" / "pvc-1"
    volume.mkdir(parents=True)
    command = [sys.executable, "-m", "corral", "up", "--machine", "hollow", "--no-network"]
    command += ["--data-dir", str(tmp_path), "--bind", "192.0.2.1:6443"]  # nobody has this address
    refused, begun = (
        subprocess.run(each, capture_output=True, text=True, timeout=300, check=False)
        for each in (command, [*command, "--new-store"])
    )
    assert refused.returncode == 1
    assert "there are no objects in" in refused.stderr
    assert "but beside it: 1 volume of claims" in refused.stderr
    assert "corral restore" in refused.stderr
    assert "--new-store" in refused.stderr
    assert "no objects" not in begun.stderr
    assert (tmp_path / "store.sqlite").stat().st_size > 0
    assert (tmp_path / "storage").stat().st_mode & 0o777 == 0o700
    assert volume.exists()


AS_NOBODY = """
import os, sys
from corral.cli.main import run
import corral.cli.manager.up, corral.daemon.run
try:
    os.geteuid() or os.setuid(65534)
except PermissionError:
    pass  # root without capabilities, which may write no more than others
sys.exit(run(sys.argv[1:]))
"""


def test_an_unwritable_directory_is_an_error_without_traceback(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o500)
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "up", "--machine", "hollow", "--data-dir", str(private)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert str(private) in done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7443", ("127.0.0.1", 7443)),
        ("127.0.0.1", ("127.0.0.1", 6443)),
        (":7443", ("127.0.0.1", 7443)),
        ("[::1]:7443", ("::1", 7443)),
        ("[::1]", ("::1", 6443)),
        ("::1", ("::1", 6443)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_bind_addresses_are_parsed(text, expected):
    assert BindAddress().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["host:port", "127.0.0.1:0", "127.0.0.1:65536", "[::1]:x"])
def test_an_invalid_port_is_rejected(run_command, tmp_path, text):
    code, output = run_command("up", "--bind", text, "--data-dir", tmp_path)
    assert code == 2
    assert "the port must be a number from 1 to 65535" in output


def test_bugs_are_raised_and_os_errors_reported():
    with pytest.raises(ExceptionGroup):
        from_os_error(ExceptionGroup("tasks", [KeyError("a bug")]))
    nested = ExceptionGroup("tasks", [ExceptionGroup("more", [OSError(28, "No space", "/x")])])
    problem = from_os_error(nested)
    assert isinstance(problem, Problem)
    assert problem.message == "/x: No space"
    assert "Free some space" in problem.hint


@pytest.mark.parametrize("command", [["ls"], ["build-demo"]], ids=str)
def test_the_first_image_command_creates_a_data_directory_for_its_owner_alone(
    run_command, tmp_path, monkeypatch, command
):
    """Whatever the umask: a build of the demo guest is often the first command of all."""
    monkeypatch.setenv("PATH", "")  # so that a build ends where it looks for apt-get
    layout = Layout(tmp_path / "data")
    mask = os.umask(0)
    try:
        run_command("image", *command, "--data-dir", layout.root)
    finally:
        os.umask(mask)
    made = [layout.root, layout.images, *layout.images.iterdir()]
    assert {each.stat().st_mode & 0o777 for each in made} == {0o700}


def test_an_image_gets_further_names(run_command, tmp_path):
    disk = tmp_path / "disk.img"
    disk.write_bytes(b"\1" * 4096)
    where = ["--data-dir", tmp_path / "data"]
    assert run_command("image", "import", disk, "lab/one:1", *where)[0] == 0
    code, output = run_command("image", "tag", "lab/one:1", "lab/two:1", "lab/three:1", *where)
    assert (code, output) == (0, "lab/two:1 is lab/one:1\nlab/three:1 is lab/one:1\n")
    listed = run_command("image", "ls", *where)[1]
    assert "lab/two:1" in listed
    assert "lab/three:1" in listed
    assert run_command("image", "tag", "lab/none:1", "lab/four:1", *where)[0] == 1


@pytest.mark.parametrize(
    "library",
    [
        *("pycdlib", "cel_expr_python", "httpx2", "tarfile", "websockets.asyncio.client"),
        *("lightkube.core.client", "prometheus_client.exposition", "uvicorn.main"),
    ],
)
def test_a_start_imports_no_rarely_needed_library(library):
    """Without a bytecode cache each start compiles all that it imports."""
    code = "import sys; import corral.cli.manager.up, corral.daemon.run; "
    code += f"sys.exit('{library}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
