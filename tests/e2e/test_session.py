"""The main job, as its user does it: kubectl, real machines, and what goes wrong with them."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from tests.cluster import EXAMPLES, Outside, outside, ranges, until
from tests.console import console

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SET = "testreplicaset"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
RANGES = ranges(__file__)


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*RANGES, directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        user.kubectl("create", "-f", str(EXAMPLES / "testreplicaset.yaml"))
        wait_until_ready(user, 3)
        yield user


def wait_until_ready(user: Outside, replicas: int) -> None:
    """Wait until the set has exactly that many ready machines and no others are left."""

    def settled() -> bool:
        status = user.get("vmirs", SET).get("status", {})
        counts = status.get("replicas", 0), status.get("readyReplicas", 0)
        return counts == (replicas, replicas) and len(user.items("vmi")) == replicas

    until(f"{replicas} machines are ready", settled)


def names(user: Outside) -> set[str]:
    return {vmi["metadata"]["name"] for vmi in user.items("vmi")}


def uids(user: Outside) -> set[str]:
    return {vmi["metadata"]["uid"] for vmi in user.items("vmi")}


def replaced(user: Outside, name: str, replicas: int = 3) -> None:
    until(f"{name} is gone", lambda: name not in names(user))
    wait_until_ready(user, replicas)


def power_off(user: Outside, name: str) -> None:
    """Have a guest turn itself off, by its console."""

    async def speak() -> None:
        async with console(user, name) as opened:
            await opened.log_in("cirros", "gocubsgo")
            await opened.types("poweroff", "poweroff\r")  # which it has read by then

    asyncio.run(speak())


def qemu_of(uid: str) -> int:
    """The process that runs a machine; its command line names the machine's UID."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "qemu-system" in line.split("\0")[0] and uid in line:
            return int(process.name)
    raise AssertionError(f"no QEMU runs machine {uid}")


def test_kubectl_get_shows_three_vmis(user):
    head, row = user.kubectl("get", "vmirs", SET).splitlines()
    assert head.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert row.split()[:4] == [SET, "3", "3", "3"]
    assert all(re.fullmatch(r"test[a-z0-9]{5}", name) for name in names(user))
    pods = user.kubectl("get", "pods").splitlines()[1:]
    assert len(pods) == 3
    assert all(re.match(r"virt-launcher-test\w{5}-\w{5} +3/3 +Running", pod) for pod in pods), pods


def test_kubectl_describe_shows_the_events_of_the_set(user):
    said = user.kubectl("describe", "vmirs", SET)
    pattern = (
        r"Normal +SuccessfulCreate +\S+( \(x\d+ over \S+\))? +"
        r"virtualmachineinstancereplicaset-controller +Created virtual machine: (test\w{5})"
    )
    assert {found[1] for found in re.findall(pattern, said)} >= names(user), said


def test_the_console_shows_a_login_prompt(user):
    name = min(names(user))
    said = user.corral("console", name, "--expect", "login:", "--timeout", "2")
    assert "login:" in said


def test_the_log_of_the_pod_is_the_console(user):
    pod = user.items("pods")[0]
    name = pod["metadata"]["name"]
    until("the guest has said who it is", lambda: "login:" in user.kubectl("logs", name))


def test_scaling_out_and_in(user):
    before = uids(user)
    user.kubectl("scale", "vmirs", SET, "--replicas", "4")
    wait_until_ready(user, 4)
    assert before < uids(user)
    user.kubectl("scale", "vmirs", SET, "--replicas", "3")
    wait_until_ready(user, 3)
    assert uids(user) == before, "the youngest goes first"


def test_a_deleted_vmi_is_replaced(user):
    victim = min(names(user))
    user.kubectl("delete", "vmi", victim)
    replaced(user, victim)


def test_evicting_a_pod_deletes_its_vmi_which_is_replaced(user):
    pod = user.items("pods")[0]
    user.kubectl("delete", "pod", pod["metadata"]["name"])
    replaced(user, pod["metadata"]["ownerReferences"][0]["name"])


def test_a_guest_that_powers_off_is_replaced(user):
    victim = min(names(user))
    power_off(user, victim)
    replaced(user, victim)


def test_a_killed_qemu_is_replaced(user):
    victim = min(user.items("vmi"), key=lambda vmi: vmi["metadata"]["name"])
    os.kill(qemu_of(victim["metadata"]["uid"]), signal.SIGKILL)
    replaced(user, victim["metadata"]["name"])


def test_a_restarted_manager_adopts_its_machines(user):
    before, processes = uids(user), {qemu_of(uid) for uid in uids(user)}
    user.kill_manager()
    assert {qemu_of(uid) for uid in before} == processes
    with outside(*RANGES, directory=user.one.directory) as again:
        wait_until_ready(again, 3)
        assert uids(again) == before
        assert {qemu_of(uid) for uid in before} == processes
        victim = min(names(again))
        again.corral("console", victim, "--expect", "login:", "--timeout", "2")
        again.kubectl("delete", "vmirs", SET, "--cascade=orphan")
        assert uids(again) == before, "orphans live on"
        again.kubectl("create", "-f", str(EXAMPLES / "testreplicaset.yaml"))
        wait_until_ready(again, 3)
        assert uids(again) == before, "a new set adopts them"
        again.kubectl("delete", "vmirs", SET)
        until("all machines are gone", lambda: not again.items("vmi"))
        until(
            "no QEMU is left", lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes)
        )
