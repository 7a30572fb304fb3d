"""Limits as users meet them: a machine over its memory limit is ended, reported and replaced."""

import json

import pytest
from tests.cluster import outside, ranges, until
from tests.limited_machine import disk_with, greedy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

GREEDY = "example/greedy:1"


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    directory = tmp_path_factory.mktemp("limits")
    with outside(*ranges(__file__)) as user:
        user.corral("image", "import", str(disk_with(directory, greedy(120))), GREEDY)
        yield user


def machine(**resources):
    disk = {"name": "root", "disk": {"bus": "virtio"}}
    return {
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "memory": {"guest": "128Mi"},
            "resources": resources,
            "devices": {"disks": [disk]},
        },
        "volumes": [{"name": "root", "containerDisk": {"image": GREEDY}}],
    }


def apply(user, kind, spec, name, namespace):
    document = {
        "apiVersion": "kubevirt.io/v1" if kind.startswith("Virtual") else "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    user.kubectl("apply", "-f", "-", input=json.dumps(document))


def cramped(user, namespace):
    """A namespace whose machines may have less memory than their guests see."""
    user.kubectl("create", "namespace", namespace)
    limits = [{"type": "Container", "default": {"memory": "100Mi"}}]
    apply(user, "LimitRange", {"limits": limits}, "small", namespace)


def test_a_vmi_over_its_memory_limit_has_failed_as_oom_killed(user):
    cramped(user, "one")
    spec = machine(requests={"memory": "16Mi"})
    apply(user, "VirtualMachineInstance", spec, "greedy", "one")
    until(
        "the instance has failed",
        lambda: user.get("vmi", "greedy", "-n", "one").get("status", {}).get("phase") == "Failed",
    )
    [pod] = user.items("pods", "-n", "one")
    ended = {one["name"]: one["state"] for one in pod["status"]["containerStatuses"]}["compute"]
    assert ended["terminated"]["reason"] == "OOMKilled"
    assert ended["terminated"]["exitCode"] == 137
    assert pod["status"]["phase"] == "Failed"
    assert "OOMKilled" in user.kubectl("get", "pods", "-n", "one")
    events = user.kubectl("get", "events", "-n", "one")
    assert "it needed more memory than its pod's limit of 100 MiB" in events


def test_a_replica_set_replaces_an_oom_killed_vmi(user):
    cramped(user, "many")
    labels = {"app": "greedy"}
    template = {"metadata": {"labels": labels}, "spec": machine(requests={"memory": "16Mi"})}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    apply(user, "VirtualMachineInstanceReplicaSet", spec, "greedy", "many")
    seen = set()

    def another():
        seen.update(vmi["metadata"]["uid"] for vmi in user.items("vmi", "-n", "many"))
        return len(seen) > 1

    until("another instance is made", another)
    user.kubectl("delete", "vmirs", "greedy", "-n", "many")


def test_node_and_status_report_the_methods_of_limits(user):
    [node] = user.items("nodes")
    annotations = node["metadata"]["annotations"]
    assert annotations["corral.dev/limits"].startswith("cpu ")
    assert annotations["corral.dev/limits-reason"]
    lines = user.corral("status").splitlines()
    [line] = [one for one in lines if one.startswith("limits")]
    assert annotations["corral.dev/limits"] in line
