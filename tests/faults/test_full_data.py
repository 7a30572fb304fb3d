"""On a full disk objects can be deleted, and a manager that was killed starts again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

# Runs with a file system of its own in argv[1].
PROGRAM = """
import os, signal, sys
from pathlib import Path
from bench.cluster import replica_set
from tests.cluster import outside, until
from corral.daemon.disk_reserve import Reserve

HOLLOW = ("--machine", "hollow", "--no-network")
MAPS = "/api/v1/namespaces/default/configmaps"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
directory = Path(sys.argv[1])
reserve = Reserve(directory / "reserve")

def fill():
    with (directory / "filler").open("ab", buffering=0) as filler:
        for size in (1 << 16, 512):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                pass

def refused(user, name):
    document = {"metadata": {"name": name}, "data": {"x": "x" * 100_000}}
    try:
        user.one.call("POST", MAPS, document)
    except RuntimeError as error:
        return "507" in str(error) and "no space left" in str(error)
    return False

with outside(*HOLLOW, directory=directory) as user:
    user.one.call("POST", SETS, replica_set("test", 3))
    for number in range(60):
        user.one.call("POST", MAPS, {"metadata": {"name": f"n{number}"}, "data": {"x": "x" * 9999}})
    until("three machines run", lambda: len(user.items("vmi")) == 3)
    until("the reserve is whole", lambda: reserve.size > 1 << 20)
    whole = reserve.size
    fill()
    names = iter(range(10**6))
    until("it is full", lambda: fill() or refused(user, f"more-{next(names)}"))
    for number in range(30):
        fill()
        user.one.call("DELETE", f"{MAPS}/n{number}")
    left = {each["metadata"]["name"] for each in user.items("cm")}
    print("deleted", left & {f"n{number}" for number in range(30)})
    user.one.call("DELETE", f"{SETS}/test")
    until("the machines are gone", lambda: not user.items("vmi") and not user.items("pods"))
    print("given", 0 < reserve.size < whole)
    fill()
    user.kill_manager()
    fill()
    with outside(*HOLLOW, directory=directory) as again:
        print("started", len(again.items("cm")) > 0)
        again.one.call("DELETE", f"{MAPS}/n55")
        os.unlink(directory / "filler")
        again.one.call("POST", MAPS, {"metadata": {"name": "after"}})
        until("the reserve is whole again", lambda: reserve.size == whole)
        print("whole")
"""


def test_a_full_disk_can_be_emptied(tmp_path):
    script = 'mount -t tmpfs -o size=48m none "$1" && exec "$2" -c "$3" "$1"'
    rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    command = ["unshare", *rights, "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, tmp_path, sys.executable, PROGRAM], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["deleted set()", "given True", "started True", "whole"]
