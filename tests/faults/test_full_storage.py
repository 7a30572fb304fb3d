"""A guest that finds no space below its disk is paused, and goes on once there is some."""

import contextlib
import os
import subprocess
import threading

import pytest
from tests.cluster import outside, ranges, until
from tests.e2e.conftest import demo_disk  # noqa: F401 - a fixture
from tests.e2e.test_session import REFERENCE
from tests.e2e.test_storage import claim, create, run, start

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

THIN = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: thin}
provisioner: corral.dev/directory
parameters: {overcommitPercent: "1000"}
"""


@pytest.fixture
def user(demo_disk, tmp_path):  # noqa: F811
    """A manager whose storage is a file system of 24 MiB, seen by it and its machines alone."""
    directory = tmp_path / "corral"
    (directory / "storage").mkdir(parents=True)
    mount = f'mountpoint -q {directory}/storage || mount -t tmpfs -o size=24m none "$0"; exec "$@"'
    rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    through = ("unshare", *rights, "--mount", "sh", "-c", mount, str(directory / "storage"))
    with outside(*ranges(__file__), directory=directory, through=through) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


def has_agent(user):
    conditions = user.get("vmi", "writer")["status"].get("conditions", [])
    return any(one["type"] == "AgentConnected" for one in conditions)


def paused(user):
    conditions = user.get("vmi", "writer").get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Paused"), None)


def test_a_guest_pauses_on_a_full_disk_and_resumes(user):
    create(user, claim("strict"))
    until("it is refused", lambda: "ProvisioningFailed" in user.kubectl("describe", "pvc"))
    assert "are left for new volumes" in user.kubectl("describe", "pvc", "strict")
    create(user, THIN, claim("data").replace("spec:", "spec:\n  storageClassName: thin"))
    start(user, "writer", "data")
    until("its agent is there", lambda: has_agent(user))
    script = "dd if=/dev/zero of=/dev/vdb bs=1M count=48 conv=fsync && touch /done"
    command = f"setsid sh -c '{script}' < /dev/null > /dev/null 2>&1 &"
    # Nobody waits for this answer: its agent may be paused before it gives one.
    asked = threading.Thread(target=asks, args=(user, command))
    asked.start()
    until("it is paused", lambda: paused(user))
    assert paused(user)["reason"] == "PausedIOError"
    words = "VM Paused due to not enough space on volume: data0"
    until("it is reported", lambda: words in user.kubectl("describe", "vmi", "writer"))
    where = str(user.one.directory / "storage")
    rights = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    subprocess.run(
        ("nsenter", "-t", str(user.one.process.pid), *rights, "--mount",
         "mount", "-o", "remount,size=128m", where),
        check=True,
    )  # fmt: skip
    user.corral("unpause", "vmi", "writer")
    until("it has written all", lambda: not paused(user) and written(user))
    asked.join()


def asks(user, command):
    """Have a guest do something, whatever its agent says of it."""
    with contextlib.suppress(AssertionError):
        run(user, "writer", command)


def written(user):
    return "yes" in run(user, "writer", "test -e /done && echo yes; true")
