"""What kubectl debug adds to pods: kept, shown, and run by nobody."""

import pytest
from tests.unit.server.conftest import STRATEGIC

POD = "/api/v1/namespaces/default/pods/pod"
DOOR = f"{POD}/ephemeralcontainers"


@pytest.fixture
async def stored(ask, pod):
    await ask("POST", "/api/v1/namespaces/default/pods", pod)
    return await ask("GET", POD)


def adding(*containers):
    return {"spec": {"ephemeralContainers": list(containers)}}


BUSYBOX = {"name": "debugger", "image": "busybox"}


async def test_an_ephemeral_container_is_added_with_a_warning(ask, stored):
    answer = await ask("PATCH", DOOR, adding(BUSYBOX), headers=STRATEGIC)
    (warning,) = answer.warnings
    assert "nothing runs the ephemeral containers of this Pod" in warning
    found = await ask("GET", DOOR)
    (container,) = found["spec"]["ephemeralContainers"]
    assert (container["name"], container["imagePullPolicy"]) == ("debugger", "Always")
    another = {"name": "another", "image": "busybox:1"}
    await ask("PATCH", DOOR, adding(another), headers=STRATEGIC)
    names = [each["name"] for each in (await ask("GET", POD))["spec"]["ephemeralContainers"]]
    assert sorted(names) == ["another", "debugger"]


async def test_the_subresource_changes_nothing_else(ask, stored):
    change = adding(BUSYBOX)
    change["metadata"] = {"labels": {"a": "b"}}
    change["spec"]["nodeName"] = "elsewhere"
    await ask("PATCH", DOOR, change, headers=STRATEGIC)
    found = await ask("GET", POD)
    assert found["metadata"].get("labels") == stored["metadata"].get("labels")
    assert found["spec"].get("nodeName") == stored["spec"].get("nodeName")


async def test_ephemeral_containers_are_added_by_the_subresource_only(ask, pod):
    pod["spec"]["ephemeralContainers"] = [BUSYBOX]
    refused = await ask("POST", "/api/v1/namespaces/default/pods", pod)
    assert refused.status == 422
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in refused["message"]
    del pod["spec"]["ephemeralContainers"]
    await ask("POST", "/api/v1/namespaces/default/pods", pod)
    refused = await ask("PATCH", POD, adding(BUSYBOX), headers=STRATEGIC)
    assert refused.status == 422
    assert "pod updates may not change fields other than" in refused["message"]


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        ({"name": "x"}, "spec.ephemeralContainers[0].image: Required value"),
        ({"name": "compute", "image": "x"}, 'Duplicate value: "compute"'),
        ({"name": "A", "image": "x"}, "spec.ephemeralContainers[0].name: Invalid value"),
        (BUSYBOX | {"targetContainerName": "nosuch"}, 'targetContainerName: Not found: "nosuch"'),
    ],
)
async def test_invalid_ephemeral_containers_are_rejected(ask, stored, container, fault):
    refused = await ask("PATCH", DOOR, adding(container), headers=STRATEGIC)
    assert refused.status == 422, refused.text
    assert fault in refused["message"]


async def test_existing_ephemeral_containers_are_immutable(ask, stored):
    await ask("PATCH", DOOR, adding(BUSYBOX), headers=STRATEGIC)
    refused = await ask("PATCH", DOOR, adding(BUSYBOX | {"image": "other"}), headers=STRATEGIC)
    assert 'existing ephemeral containers "debugger" may not be changed' in refused["message"]
    found = await ask("GET", POD)
    found.document["spec"]["ephemeralContainers"] = []
    refused = await ask("PUT", DOOR, found.document)
    assert 'existing ephemeral containers "debugger" may not be removed' in refused["message"]
    assert (await ask("POST", DOOR, found.document)).status == 405
