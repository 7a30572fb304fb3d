"""How endpoints are packed into slices."""

from itertools import count

from hypothesis import given, settings, strategies as st
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.discovery_v1 import Endpoint, EndpointConditions, EndpointSlice
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference

from corral.cluster.endpoints.members import Port
from corral.cluster.endpoints.slices import (
    MANAGED_BY,
    MANAGER,
    MAX_ENDPOINTS,
    SERVICE_NAME,
    TRIGGER,
    Frame,
    Group,
    identity,
    plan,
)

HTTP = (Port("http", "TCP", 8080),)
OWNER = {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "u1"}
FRAME = Frame("default", "web-", OWNER, {SERVICE_NAME: "web", MANAGED_BY: MANAGER}, {})


def endpoint(number: int, *, ready: bool = True) -> Endpoint:
    reference = ObjectReference(kind="Pod", name=f"pod-{number}", uid=f"uid-{number}")
    return Endpoint(
        addresses=[f"10.244.{number // 250}.{number % 250 + 1}"],
        conditions=EndpointConditions(ready=ready, serving=ready, terminating=False),
        targetRef=reference,
    )


def group(*numbers: int, ports=HTTP, unready=(), may_be_empty=False) -> Group:
    endpoints = [endpoint(number, ready=number not in unready) for number in numbers]
    return Group("IPv4", ports, {identity(each): each for each in endpoints}, may_be_empty)


def existing(name: str, *numbers: int, ports=HTTP, labels=None) -> EndpointSlice:
    return EndpointSlice(
        addressType="IPv4",
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            resourceVersion="7",
            labels=labels or dict(FRAME.labels),
            ownerReferences=[OwnerReference(apiVersion="v1", kind="Service", name="web", uid="u1")],
        ),
        ports=[port.in_slice() for port in ports],
        endpoints=[endpoint(number) for number in numbers],
    )


def pods_of(endpoints) -> list[str]:
    return [each.targetRef.name.removeprefix("pod-") for each in endpoints]


def test_the_first_endpoints_create_slices():
    changes = plan([group(1, 2)], [], FRAME)
    (document,) = changes.create
    assert document["metadata"]["generateName"] == "web-"
    assert document["metadata"]["ownerReferences"] == [OWNER]
    assert document["addressType"] == "IPv4"
    assert pods_of(document["endpoints"]) == ["1", "2"]
    assert not changes.update
    assert not changes.delete


def test_unchanged_endpoints_write_nothing():
    assert not plan([group(1, 2)], [existing("a", 1, 2)], FRAME)


def test_a_changed_condition_is_written_in_place():
    changes = plan([group(1, 2, unready=[2])], [existing("a", 1, 2)], FRAME)
    ((slice_, patch),) = changes.update
    assert slice_.metadata.name == "a"
    assert patch["metadata"]["resourceVersion"] == "7"
    assert [each.conditions.ready for each in patch["endpoints"]] == [True, False]


def test_only_changed_slices_are_written():
    first, second = range(100), range(100, 200)
    slices = [existing("a", *first), existing("b", *second)]
    changes = plan([group(*first, *second[1:])], slices, FRAME)
    assert [each.metadata.name for each, _ in changes.update] == ["b"]
    assert not changes.create
    assert not changes.delete


def test_new_endpoints_go_into_slices_that_change_anyway():
    slices = [existing("a", *range(50)), existing("b", *range(100, 190))]
    changes = plan([group(*range(1, 50), *range(100, 190), 300)], slices, FRAME)
    ((slice_, patch),) = changes.update
    assert slice_.metadata.name == "a"
    assert pods_of(patch["endpoints"])[-1] == "300"


def test_new_endpoints_fill_the_fullest_slice_with_room_for_all():
    slices = [existing("a", *range(50)), existing("b", *range(100, 190))]
    changes = plan([group(*range(50), *range(100, 190), 300)], slices, FRAME)
    assert [each.metadata.name for each, _ in changes.update] == ["b"]


def test_endpoints_beyond_the_limit_create_another_slice():
    changes = plan([group(*range(250))], [existing("a", *range(100))], FRAME)
    assert [len(each["endpoints"]) for each in changes.create] == [100, 50]
    assert not changes.update


def test_an_empty_slice_is_deleted():
    changes = plan([group(1)], [existing("a", 1), existing("b", 2)], FRAME)
    assert [each.metadata.name for each in changes.delete] == ["b"]


def test_a_service_without_endpoints_has_one_empty_slice():
    empty = Group("IPv4", may_be_empty=True)
    changes = plan([empty], [existing("a", 1)], FRAME)
    (document,) = changes.create
    assert document["endpoints"] == document["ports"] == []
    assert [each.metadata.name for each in changes.delete] == ["a"]
    assert not plan([empty], [existing("a", ports=())], FRAME)


def test_different_ports_have_different_slices():
    metrics = (Port("metrics", "TCP", 9090),)
    changes = plan([group(1), group(2, ports=metrics)], [existing("a", 1, 2)], FRAME)
    assert pods_of(changes.create[0]["endpoints"]) == ["2"]
    assert pods_of(changes.update[0][1]["endpoints"]) == ["1"]


def test_changed_labels_are_restored():
    wrong = existing("a", 1, labels={**FRAME.labels, "mine": "yes"})
    ((_, patch),) = plan([group(1)], [wrong], FRAME).update
    assert patch["metadata"]["labels"] == {"mine": None, **FRAME.labels}


def test_a_changed_trigger_time_alone_causes_no_write():
    later = Frame("default", "web-", OWNER, FRAME.labels, {TRIGGER: "2026-01-01T00:00:00Z"})
    assert not plan([group(1)], [existing("a", 1)], later)
    ((_, patch),) = plan([group(1, 2)], [existing("a", 1)], later).update
    assert patch["metadata"]["annotations"] == {TRIGGER: "2026-01-01T00:00:00Z"}


@given(st.lists(st.sets(st.integers(0, 400), max_size=320), min_size=1, max_size=5))
@settings(max_examples=40)
def test_after_any_history_each_endpoint_is_in_one_of_few_slices(history):
    names, slices = count(), {}
    for desired in history:
        changes = plan([group(*sorted(desired), may_be_empty=True)], slices.values(), FRAME)
        for gone in changes.delete:
            del slices[gone.metadata.name]
        for slice_, patch in changes.update:
            slices[slice_.metadata.name].endpoints = patch["endpoints"]
        for document in changes.create:
            made = existing(f"s{next(names)}")
            made.endpoints = document["endpoints"]
            slices[made.metadata.name] = made
        found = [name for each in slices.values() for name in pods_of(each.endpoints)]
        assert sorted(found) == sorted(map(str, desired))
        assert all(len(each.endpoints) <= MAX_ENDPOINTS for each in slices.values())
        assert slices
        assert not plan([group(*sorted(desired), may_be_empty=True)], slices.values(), FRAME)
