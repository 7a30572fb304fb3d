import msgspec
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import Pod

from corral.reconcile.sharing import share

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


@given(pods, pods)
def test_sharing_changes_nothing_that_can_be_read(one, other):
    like, item = msgspec.convert(one, Pod), msgspec.convert(other, Pod)
    share(item, like)
    assert item == msgspec.convert(other, Pod)
    assert like == msgspec.convert(one, Pod)


def test_what_is_equal_is_one_object_and_what_differs_is_not():
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
