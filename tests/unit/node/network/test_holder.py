"""Joining a network's user namespace, as far as that needs no rights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.node import process
from corral.node.network import holder
from corral.node.network.netlink import NetworkError

ROOT = Path(__file__).parents[4]


def test_root_joins_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    holder.join(tmp_path / "holder")
    assert not (tmp_path / "holder").exists()


def test_a_namespace_that_cannot_be_made_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        holder,
        "_command",
        lambda: ["sh", "-c", "echo unshare: unshare failed: No space left; read x"],
    )
    with pytest.raises(NetworkError, match="no user namespace can be made: No space left"):
        holder.join(tmp_path / "holder")
    assert not process.runs(tmp_path / "holder")


def test_a_program_that_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(holder, "_command", lambda: ["no-such-program"])
    with pytest.raises(NetworkError) as caught:
        holder.join(tmp_path / "holder")
    assert "Install it: apt-get install util-linux" in caught.value.told


def test_what_another_user_holds_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(holder, "_entered", lambda identity: False)
    (tmp_path / "holder").mkdir()
    lock = process.hold(tmp_path / "holder")
    assert lock is not None
    try:
        with pytest.raises(NetworkError, match="a process of another user holds"):
            holder.join(tmp_path / "holder")
    finally:
        os.close(lock)


JOINING = """
import sys
from pathlib import Path
from corral.node.network import holder, netlink
from corral.node.network.namespaces import Namespace

def joined():
    try:
        holder.join(Path(sys.argv[1]), map(Path, sys.argv[2:]))
    except netlink.NetworkError as error:
        sys.exit(error.told)

joined()
with Namespace.create():
    print(Path("/proc/self/ns/user").readlink())
"""


@pytest.mark.e2e
def test_an_ordinary_user_comes_back_to_the_same_namespace(tmp_path):
    """By the holder; where that was killed, by any process that lives there; else by a new one."""
    place, other = str(tmp_path / "holder"), tmp_path / "other"
    script = f"""
    set -e
    join() {{ {sys.executable} -c "$JOINING" {place} {other}; }}
    first=$(join); test "$(join)" = "$first"
    holder=$(grep -o '"pid":[0-9]*' {place}/process.json | cut -d: -f2)
    mkdir -p {other}; cp {place}/process.json {other}/
    nsenter --user=/proc/$holder/ns/user --preserve-credentials sleep 60 & sleeper=$!
    sleep 0.3
    {sys.executable} -c "
from pathlib import Path
from corral.node import process
process.write_record(Path('{other}'), process.identify($sleeper))"
    kill -9 $holder
    test "$(join)" = "$first"
    kill $sleeper; wait $sleeper || true
    join  # nothing is left to come back to
    kill -9 $(grep -o '"pid":[0-9]*' {place}/process.json | cut -d: -f2)
    """
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    command = [*(ordinary if os.geteuid() == 0 else []), "sh", "-c", script]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src", "JOINING": JOINING},
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
