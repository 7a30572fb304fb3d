"""Defaults of VMIs."""

import uuid
from typing import Any

import pytest
from hypothesis import given, strategies as st

from corral.api.images import pull_policy
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE

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


def test_a_new_vmi_has_phase_pending():
    assert made()["status"] == {
        "phase": "Pending",
        "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": NOW}],
        "runtimeUser": 107,
        "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
    }


def test_a_status_on_create_is_ignored():
    document: dict[str, Any] = {
        "metadata": {"creationTimestamp": NOW},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Succeeded"},
    }
    VIRTUAL_MACHINE_INSTANCE.default_create(document)
    assert document["status"]["phase"] == "Pending"


def test_a_new_vmi_has_the_finalizer():
    metadata = made()["metadata"]
    assert metadata["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert metadata["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}


def test_every_vmi_gets_its_own_uuid():
    first, second = (domain()["firmware"]["uuid"] for _ in range(2))
    assert uuid.UUID(first).version == 4
    assert first != second
    assert domain(firmware={"uuid": "mine"})["firmware"]["uuid"] == "mine"


def test_the_machine_type_is_q35_on_amd64_with_acpi():
    spec = made()["spec"]
    assert spec["architecture"] == "amd64"
    assert spec["domain"]["machine"] == {"type": "q35"}
    assert spec["domain"]["features"] == {"acpi": {"enabled": True}}
    assert domain(machine={"type": "pc"})["machine"] == {"type": "pc"}
    off = {"acpi": {"enabled": False}}
    assert domain(features=off)["features"] == off


@pytest.mark.parametrize(
    ("resources", "memory", "guest"),
    [
        ({"requests": {"memory": "64M"}}, {}, "64M"),
        ({"limits": {"memory": "1Gi"}}, {}, "1Gi"),
        ({"requests": {"memory": "64M"}, "limits": {"memory": "1Gi"}}, {}, "64M"),
        ({}, {"guest": "128Mi"}, "128Mi"),
        ({"requests": {"memory": "1Gi"}}, {"guest": "2Gi"}, "2Gi"),
        ({}, {"hugepages": {"pageSize": "2Mi"}}, "2Mi"),
    ],
)
def test_guest_memory_defaults_to_the_request(resources, memory, guest):
    document = made({"resources": dict(resources), "memory": memory})
    assert document["spec"]["domain"]["memory"]["guest"] == guest
    assert document["spec"]["domain"]["resources"] == resources
    assert document["status"]["memory"] == {
        "guestAtBoot": guest,
        "guestCurrent": guest,
        "guestRequested": guest,
    }


def test_cpu_requests_default_to_limits():
    complete = domain(resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    assert complete["resources"]["requests"] == {"cpu": "1"}
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}}
    assert domain(resources=resources)["resources"] == resources


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
        ({}, {"requests": {"cpu": "1e300"}}, (255, 1, 1)),
    ],
)
def test_the_cpu_topology_has_defaults(cpu, resources, topology):
    document = made({"cpu": dict(cpu), "resources": resources})
    shown = document["status"]["currentCPUTopology"]
    assert (shown["sockets"], shown["cores"], shown["threads"]) == topology
    complete = document["spec"]["domain"]["cpu"]
    assert complete.pop("model") == "host-model"
    assert complete == (cpu or {"sockets": topology[0], "cores": 1, "threads": 1})


def test_volumes_get_disks_with_device_and_bus():
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


def test_the_default_network_is_the_pods():
    spec = made()["spec"]
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert spec["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]


def test_a_vmi_can_have_no_network():
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
def test_the_default_pull_policy_depends_on_the_tag(image, policy):
    assert pull_policy(image) == policy
    [volume] = made(volumes=[{"name": "a", "containerDisk": {"image": image}}])["spec"]["volumes"]
    assert volume["containerDisk"]["imagePullPolicy"] == policy


def test_a_given_pull_policy_stays():
    volume = {"name": "a", "containerDisk": {"image": "cirros", "imagePullPolicy": "Never"}}
    assert made(volumes=[volume])["spec"]["volumes"][0]["containerDisk"] == volume["containerDisk"]


def test_probes_get_default_times():
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
def test_defaults_are_idempotent(fields):
    document = made(fields)
    before = repr(document["spec"])
    VIRTUAL_MACHINE_INSTANCE.default_create(document)
    assert repr(document["spec"]) == before
