"""What a machine gets that its maker did not ask for."""

import uuid
from typing import Any

import pytest
from hypothesis import given, strategies as st

from corral.api.images import pull_policy
from corral.api.kinds.kubevirt import VIRTUAL_MACHINE_INSTANCE

NOW = "2026-01-31T12:00:00Z"


def made(
    domain: dict[str, Any] | None = None, devices: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    document = {
        "metadata": {"name": "vm", "creationTimestamp": NOW},
        "spec": {"domain": {"devices": devices or {}, **(domain or {})}, **fields},
    }
    VIRTUAL_MACHINE_INSTANCE.default_create(document)
    return document


def domain(**fields: Any) -> dict[str, Any]:
    whole: dict[str, Any] = made(fields)["spec"]["domain"]
    return whole


def test_a_machine_begins_pending():
    assert made()["status"] == {
        "phase": "Pending",
        "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": NOW}],
        "runtimeUser": 107,
    }


def test_a_status_that_was_sent_is_nothing():
    document: dict[str, Any] = {
        "metadata": {"creationTimestamp": NOW},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Succeeded"},
    }
    VIRTUAL_MACHINE_INSTANCE.default_create(document)
    assert document["status"]["phase"] == "Pending"


def test_a_machine_is_held_until_it_is_gone():
    metadata = made()["metadata"]
    assert metadata["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert metadata["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}


def test_every_machine_has_an_identity_of_its_own():
    first, second = (domain()["firmware"]["uuid"] for _ in range(2))
    assert uuid.UUID(first).version == 4
    assert first != second
    assert domain(firmware={"uuid": "mine"})["firmware"]["uuid"] == "mine"


def test_the_board_is_q35_on_amd64_and_guests_have_thirty_seconds():
    spec = made()["spec"]
    assert spec["domain"]["machine"] == {"type": "q35"}
    assert spec["architecture"] == "amd64"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert domain(machine={"type": "pc"})["machine"] == {"type": "pc"}
    assert made(terminationGracePeriodSeconds=0)["spec"]["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("resources", "memory", "requests", "guest"),
    [
        ({"requests": {"memory": "64M"}}, {}, {"memory": "64M"}, "64M"),
        ({"limits": {"memory": "1Gi"}}, {}, {"memory": "1Gi"}, "1Gi"),
        ({}, {"guest": "128Mi"}, {"memory": "128Mi"}, "128Mi"),
        ({"requests": {"memory": "1Gi"}}, {"guest": "2Gi"}, {"memory": "1Gi"}, "2Gi"),
        (
            {"requests": {"memory": "64M"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            {},
            {"memory": "64M", "cpu": "1"},
            "64M",
        ),
    ],
)
def test_requests_and_guest_memory_follow_from_each_other(resources, memory, requests, guest):
    complete = domain(resources=resources, memory=memory)
    assert complete["resources"]["requests"] == requests
    assert complete["memory"]["guest"] == guest


@pytest.mark.parametrize(
    ("cpu", "resources", "topology"),
    [
        ({}, {}, (1, 1, 1)),
        ({"cores": 4}, {}, (1, 4, 1)),
        ({"sockets": 2, "threads": 2}, {"limits": {"cpu": "9"}}, (2, 1, 2)),
        ({}, {"limits": {"cpu": "2500m"}}, (3, 1, 1)),
        ({}, {"requests": {"cpu": "2"}}, (2, 1, 1)),
        ({}, {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}}, (1, 1, 1)),
        ({}, {"requests": {"cpu": "rubbish"}}, (1, 1, 1)),
    ],
)
def test_processors_are_counted(cpu, resources, topology):
    complete = domain(cpu=cpu, resources=resources)["cpu"]
    assert (complete["sockets"], complete["cores"], complete["threads"]) == topology
    assert complete["model"] == "host-model"


def test_every_volume_has_a_disk_every_disk_a_device_and_a_bus():
    devices = {
        "disks": [
            {"name": "a"},
            {"name": "b", "disk": {"bus": "virtio"}},
            {"name": "c", "cdrom": {}},
        ],
        "filesystems": [{"name": "d", "virtiofs": {}}],
    }
    volumes = [{"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in "abcde"]
    assert made(devices=devices, volumes=volumes)["spec"]["domain"]["devices"]["disks"] == [
        {"name": "a", "disk": {"bus": "sata"}},
        {"name": "b", "disk": {"bus": "virtio"}},
        {"name": "c", "cdrom": {"bus": "sata", "readonly": True, "tray": "closed"}},
        {"name": "e", "disk": {"bus": "sata"}},
    ]


def test_a_machine_without_volumes_has_no_disks():
    assert "disks" not in domain()["devices"]


def test_a_machine_that_says_nothing_of_networks_gets_the_pods():
    spec = made()["spec"]
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert spec["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]


def test_a_machine_may_do_without_a_network():
    spec = made(devices={"autoattachPodInterface": False})["spec"]
    assert "networks" not in spec
    assert "interfaces" not in spec["domain"]["devices"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("cirros", "Always"),
        ("cirros:latest", "Always"),
        ("localhost:5000/cirros", "Always"),
        ("cirros:1.0", "IfNotPresent"),
        ("localhost:5000/cirros:1.0", "IfNotPresent"),
        ("cirros@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_images_are_pulled_again_where_their_tag_moves(image, policy):
    assert pull_policy(image) == policy
    [volume] = made(volumes=[{"name": "a", "containerDisk": {"image": image}}])["spec"]["volumes"]
    assert volume["containerDisk"]["imagePullPolicy"] == policy


def test_a_pull_policy_that_was_said_stays():
    volume = {"name": "a", "containerDisk": {"image": "cirros", "imagePullPolicy": "Never"}}
    assert made(volumes=[volume])["spec"]["volumes"][0]["containerDisk"] == volume["containerDisk"]


def test_probes_are_timed():
    assert made(readinessProbe={"tcpSocket": {"port": 22}, "periodSeconds": 5})["spec"][
        "readinessProbe"
    ] == {
        "tcpSocket": {"port": 22},
        "timeoutSeconds": 1,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.fixed_dictionaries(
                {}, optional={"cores": st.integers(0, 4), "sockets": st.integers(0, 4)}
            ),
            "memory": st.fixed_dictionaries({}, optional={"guest": st.just("1Gi")}),
            "resources": st.fixed_dictionaries(
                {}, optional={"limits": st.dictionaries(st.just("cpu"), st.just("2"))}
            ),
        },
    )
)
def test_what_is_complete_is_not_completed_again(fields):
    document = made(fields)
    before = repr(document["spec"])
    VIRTUAL_MACHINE_INSTANCE.default_create(document)
    assert repr(document["spec"]) == before
