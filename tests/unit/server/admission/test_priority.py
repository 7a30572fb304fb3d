"""Pods get the priority of their class; classes keep out of each other's way."""

import pytest
from tests.unit.server.conftest import PODS

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def classed(ask, name, value, **fields):
    answer = await ask("POST", CLASSES, {"metadata": {"name": name}, "value": value, **fields})
    assert answer.status == 201, answer.text


def a_pod(name="pod", **spec) -> dict:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def test_a_pod_gets_the_priority_of_its_class(ask):
    await classed(ask, "high", 1000, preemptionPolicy="Never")
    spec = (await ask("POST", PODS, a_pod(priorityClassName="high")))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_a_pod_without_a_class_gets_the_default_one(ask):
    spec = (await ask("POST", PODS, a_pod("plain")))["spec"]
    assert (spec["priority"], spec.get("priorityClassName")) == (0, None)
    await classed(ask, "usual", 5, globalDefault=True)
    spec = (await ask("POST", PODS, a_pod("usual")))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (5, "usual")


async def test_only_one_class_is_the_default(ask):
    await classed(ask, "usual", 5, globalDefault=True)
    other = {"metadata": {"name": "other"}, "value": 1, "globalDefault": True}
    answer = await ask("POST", CLASSES, other)
    assert answer.status == 403
    assert answer["message"].endswith(
        "PriorityClass usual is already marked as default. Only one default can exist"
    )
    assert (await ask.patch(f"{CLASSES}/usual", {"description": "still"})).status == 200


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "nosuch"}, "no PriorityClass with name nosuch was found"),
        ({"priority": 7}, "the integer value of priority (7) must not be provided in pod spec"),
        (
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec",
        ),
    ],
)
async def test_a_pod_cannot_set_its_priority_itself(ask, spec, why):
    answer = await ask("POST", PODS, a_pod(**spec))
    assert answer.status == 403
    assert answer["message"].startswith(f'pods "pod" is forbidden: {why}')


async def test_the_value_of_a_class_is_immutable(ask):
    await classed(ask, "high", 1000)
    answer = await ask.patch(f"{CLASSES}/high", {"value": 1})
    assert (answer.status, answer["details"]["causes"][0]["field"]) == (422, "value")
    assert (await ask("POST", CLASSES, {"metadata": {"name": "system-own"}})).status == 422
