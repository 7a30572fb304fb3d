"""A claimed machine with a real guest: it runs what a program has it run, and is thrown away."""

import json
import time

import pytest
from tests.cluster import outside, ranges, until

from corral.api.time import parse_rfc3339
from corral.client.claim import CommandError, claim

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
POOL = {
    "apiVersion": "corral.dev/v1alpha1",
    "kind": "VirtualMachineWarmPool",
    "metadata": {"name": "spares"},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "domain": {
                    "memory": {"guest": "128Mi"},
                    "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                },
                "volumes": [{"name": "root", "containerDisk": {"image": REFERENCE}}],
            }
        },
    },
}
SCRIPT = "#!/bin/sh\necho seeded > /root/seed\n"


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


async def test_a_program_uses_a_machine_that_nobody_gets_again(user):
    user.kubectl("create", "-f", "-", input=json.dumps(POOL))
    until(
        "a spare is ready",
        lambda: user.get("vmwp", "spares").get("status", {}).get("readyReplicas"),
    )
    [spare] = user.items("vmi")
    async with claim(
        "spares",
        ttl="10m",
        user_data=SCRIPT,
        kubeconfig=user.one.directory / "kubeconfig",
    ) as machine:
        assert machine.name == spare["metadata"]["name"]
        seeded = await machine.run(["cat", "/root/seed"])
        assert seeded.output == b"seeded\n"
        typed = await machine.run(["tr", "a-z", "A-Z"], typed=b"hello")
        assert typed.output == b"HELLO"
        with pytest.raises(CommandError, match="exit code 3"):
            await machine.run(["sh", "-c", "exit 3"])
    until("it is gone", lambda: spare["metadata"]["uid"] not in uids(user))
    until("another spare is ready", lambda: user.get("vmwp", "spares")["status"]["readyReplicas"])
    assert user.items("vmclaim") == []


async def test_a_paused_spare_goes_on_with_the_right_time(user):
    document = POOL | {"metadata": {"name": "paused"}, "spec": POOL["spec"] | {"state": "Paused"}}
    user.kubectl("create", "-f", "-", input=json.dumps(document))
    until("a spare is paused", lambda: paused_since(user))
    until("its clock is behind", lambda: time.time() - paused_since(user) > 5)
    assert user.get("vmwp", "paused")["status"]["readyReplicas"] == 1
    [spare] = user.items("vmi", "-l", "corral.dev/warm-pool=paused")
    async with claim("paused", ttl="10m", kubeconfig=user.one.directory / "kubeconfig") as machine:
        assert machine.name == spare["metadata"]["name"]
        now = await machine.run(["date", "+%s"])
        assert abs(int(now.output) - time.time()) < 3


def paused_since(user) -> float:
    """Return when the spare was paused; 0 if it is not."""
    for vmi in user.items("vmi", "-l", "corral.dev/warm-pool=paused"):
        for condition in vmi.get("status", {}).get("conditions", []):
            if condition.get("reason") == "PausedAsSpare":
                return parse_rfc3339(condition["lastTransitionTime"]).timestamp()
    return 0.0


def uids(user) -> set[str]:
    return {vmi["metadata"]["uid"] for vmi in user.items("vmi")}
