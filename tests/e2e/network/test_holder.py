"""Coming back to a network's user namespace, as an ordinary user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
JOINING = """
import sys
from pathlib import Path
from corral.node.network import namespace_holder as holder, netlink
from corral.node.network.namespaces import Namespace

def joined():
    try:
        holder.join(Path(sys.argv[1]), map(Path, sys.argv[2:]))
    except netlink.NetworkError as error:
        sys.exit(error.full_message)

joined()
with Namespace.create():
    print(Path("/proc/self/ns/user").readlink())
"""


def test_without_root_the_namespace_is_joined_again(tmp_path):
    """By the holder; where that was killed, by any process that lives there; else by a new one."""
    place, other = str(tmp_path / "holder"), tmp_path / "other"
    script = f"""
    set -e
    join() {{ {sys.executable} -c "$JOINING" {place} {other}; }}
    first=$(join); test "$(join)" = "$first"
    holder=$(grep -o '"pid":[0-9]*' {place}/process.json | cut -d: -f2)
    mkdir -p {other}; cp {place}/process.json {other}/
    nsenter --user=/proc/$holder/ns/user --preserve-credentials sleep 300 & sleeper=$!
    until [ "$(readlink /proc/$sleeper/ns/user)" = "$first" ]; do :; done
    {sys.executable} -c "
from pathlib import Path
from corral.node.host import process
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
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
