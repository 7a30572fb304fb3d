"""Live migration from outside, by kubectl and virtctl's commands, with simulated machines."""

import json

import pytest
from tests.cluster import Outside, outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
OVER = ("Succeeded", "Failed")


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corral")
    arguments = ("--nodes", "2", "--machine", "hollow", *ranges(__file__))
    with outside(*arguments, directory=directory) as user:
        user.kubectl("create", "-f", "-", input=json.dumps(replica_set(10)))
        until("all are ready", lambda: len(ready(user)) == 10)
        yield user


def replica_set(replicas: int) -> dict:
    labels = {"app": "web"}
    spec = {
        "evictionStrategy": "LiveMigrate",
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "resources": {"requests": {"memory": "64M"}},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "cirros:1"}}],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def ready(user: Outside) -> list[dict]:
    return [
        each
        for each in user.items("vmi")
        if any(
            (one["type"], one["status"]) == ("Ready", "True")
            for one in each["status"].get("conditions", [])
        )
    ]


def placement(user: Outside) -> dict[str, tuple[str, str]]:
    """Return node and address of each VMI, by its uid."""
    return {
        each["metadata"]["uid"]: (
            each["status"]["nodeName"],
            each["status"]["interfaces"][0]["ipAddress"],
        )
        for each in ready(user)
    }


def ended(user: Outside) -> dict[str, str]:
    """Return the phases of all migrations, once they are over."""

    def are_over() -> bool:
        return all(each.get("status", {}).get("phase") in OVER for each in user.items("vmim"))

    until("all migrations are over", are_over)
    return {each["metadata"]["name"]: each["status"]["phase"] for each in user.items("vmim")}


def test_a_machine_moves_and_keeps_its_address(user):
    first = ready(user)[0]
    name, uid = first["metadata"]["name"], first["metadata"]["uid"]
    node, address = placement(user)[uid]
    assert user.corral("migrate", name) == f"VMI {name} was scheduled to migrate\n"
    assert set(ended(user).values()) == {"Succeeded"}
    until("it is ready", lambda: uid in placement(user))
    assert placement(user)[uid][0] != node
    assert placement(user)[uid][1] == address
    table = user.kubectl("get", "vmim").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "VMI", "SOURCE", "TARGET", "AGE"]
    assert table[1].split()[1:5] == ["Succeeded", name, node, placement(user)[uid][0]]


def test_a_node_that_is_not_there_or_has_the_machine_is_refused(user):
    before = len(user.items("vmim"))
    machine = ready(user)[0]
    name, node = machine["metadata"]["name"], machine["status"]["nodeName"]
    assert "there is no node nowhere" in user.corral(
        "migrate", name, "--to", "nowhere", check=False
    )
    assert f"{name} is on the node {node}" in user.corral(
        "migrate", name, "--to", node, check=False
    )
    assert len(user.items("vmim")) == before


def test_a_migration_that_no_node_takes_waits_and_is_cancelled(user):
    name = ready(user)[0]["metadata"]["name"]
    user.corral("migrate", name, "--addedNodeSelector", "zone=nowhere")
    refused = user.corral("migrate", name, check=False)
    assert "in-flight migration detected" in refused
    user.corral("migrate-cancel", name)
    until("it is gone", lambda: set(ended(user).values()) <= {"Succeeded"})
    assert f"Found no migration to cancel for {name}" in user.corral(
        "migrate-cancel", name, check=False
    )
    assert len(ready(user)) == 10


def test_a_drain_moves_all_machines_of_a_node(user):
    before = placement(user)
    node = user.items("node")[0]["metadata"]["name"]
    user.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    until("all are ready", lambda: len(ready(user)) == 10)
    after = placement(user)
    assert {uid: address for uid, (_, address) in after.items()} == {
        uid: address for uid, (_, address) in before.items()
    }
    assert node not in {each for each, _ in after.values()}
    assert set(ended(user).values()) == {"Succeeded"}
