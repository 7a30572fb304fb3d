import sys

import msgspec
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import Pod

from corral.api.object import AnyFields, Struct
from corral.reconcile.interning import share


class Custom(Struct):
    """Holds what no schema names."""

    spec: AnyFields


names = st.sampled_from(["a", "b"])
pods = st.builds(
    lambda name, labels, containers: {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": containers},
    },
    names,
    st.dictionaries(names, names),
    st.lists(
        st.fixed_dictionaries({"name": names, "image": names, "args": st.lists(names)}), max_size=3
    ),
)

values = st.sampled_from([None, True, 1, 1.0, "1"])
specs = st.fixed_dictionaries(
    {"one": values, "list": st.lists(values, max_size=2), "map": st.dictionaries(names, values)}
)


@given(pods, pods)
def test_interning_does_not_change_values(one, other):
    like, item = msgspec.convert(one, Pod), msgspec.convert(other, Pod)
    share(item, like)
    assert item == msgspec.convert(other, Pod)
    assert like == msgspec.convert(one, Pod)


@given(pods, pods, pods)
def test_interning_with_two_objects_does_not_change_values(one, other, another):
    documents = one, other, another
    item, like, further = (msgspec.convert(each, Pod) for each in documents)
    share(item, like, further)
    assert [item, like, further] == [msgspec.convert(each, Pod) for each in documents]


def test_repeated_strings_are_kept_once():
    def pod(name):
        document = {
            "metadata": {"name": name, "labels": {"of": name}},
            "spec": {"containers": [], "hostname": name},
        }
        return msgspec.json.decode(msgspec.json.encode(document), type=Pod)

    item = pod("a-machine-of-its-own")
    assert item.spec.hostname is not item.metadata.name
    share(item, pod("another-machine"))
    assert item.spec.hostname is item.metadata.name is item.metadata.labels["of"]


def test_long_strings_are_freed_with_their_object():
    """8192 of them, each as long as an object may be, would be all of the host's memory."""

    def pod(name, text):
        return msgspec.convert({"metadata": {"name": name, "annotations": {"a": text}}}, Pod)

    for length in (64, 65):
        text = "".join(["x"] * length)
        before = sys.getrefcount(text)
        item = pod("of-a-length", text)
        share(item, pod("another", "y"))
        del item
        assert (sys.getrefcount(text) > before) is (length == 64)


def test_values_missing_in_the_first_object_are_shared_with_the_second():
    def pod(name, labels, containers):
        document = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": each, "image": each * 9} for each in containers]},
        }
        return msgspec.json.decode(msgspec.json.encode(document), type=Pod)

    before = pod("mine", {"app": "own" * 9, "tier": "old" * 9}, ["a", "b"])
    beside = pod("other", {"app": "its" * 9, "tier": "new" * 9}, ["c", "d", "e"])
    item = pod("mine", {"app": "own" * 9, "tier": "new" * 9}, ["a", "d", "e"])
    share(item, before, beside)
    assert item == pod("mine", {"app": "own" * 9, "tier": "new" * 9}, ["a", "d", "e"])
    assert item.metadata.labels["app"] is before.metadata.labels["app"]
    assert item.metadata.labels["tier"] is beside.metadata.labels["tier"]
    assert item.spec.containers[0] is before.spec.containers[0]
    assert item.spec.containers[1] is beside.spec.containers[1]
    assert item.spec.containers[2] is beside.spec.containers[2]


def test_equal_values_become_one_object():
    containers = [{"name": "a", "image": "x" * 100}, {"name": "b", "image": "y" * 100}]
    document = {"metadata": {"name": "one"}, "spec": {"containers": containers}}
    like = msgspec.convert(document, Pod)
    document = msgspec.json.decode(msgspec.json.encode(document))
    document["metadata"]["name"] = "two"
    document["spec"]["containers"][1]["name"] = "c"
    item = msgspec.convert(document, Pod)
    share(item, like)
    assert item.metadata.name == "two"
    assert item.spec.containers[0] is like.spec.containers[0]
    assert item.spec.containers[1] is not like.spec.containers[1]
    assert item.spec.containers[1].image is like.spec.containers[1].image


def test_equal_parts_of_maps_become_one_object():
    def pod(name):
        labels = {"name": name, "app": "".join(["w", "eb"])}
        return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Pod)

    like, item = pod("one"), pod("two")
    share(item, like)
    assert item.metadata.labels == {"name": "two", "app": "web"}
    assert item.metadata.labels["app"] is like.metadata.labels["app"]


@given(specs, specs)
def test_values_equal_only_in_python_are_not_shared(one, other):
    """True == 1 == 1.0, but not for who reads them in JSON."""
    like, item = Custom(spec=one), Custom(spec=other)
    before = msgspec.json.encode([like, item], order="deterministic")
    share(item, like)
    assert msgspec.json.encode([like, item], order="deterministic") == before


def test_equal_numbers_and_booleans_keep_their_type():
    like = Custom(spec={"x": {"on": 1}, "y": 1, "list": [1, 2], "z": "".join(["wo", "rd"])})
    item = Custom(spec={"x": {"on": True}, "y": 1.0, "list": [True, 2], "z": "".join(["wor", "d"])})
    share(item, like)
    assert repr(item.spec) == "{'x': {'on': True}, 'y': 1.0, 'list': [True, 2], 'z': 'word'}"
    assert item.spec["z"] is like.spec["z"]
