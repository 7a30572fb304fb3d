import pytest
from hypothesis import given, strategies as st
from tests.counting import Compared

from corral.api.encoding import copied
from corral.api.errors import BadRequest
from corral.api.kinds import KINDS
from corral.api.patch import strategic
from corral.api.patch.merge import merge_patch
from corral.api.schema import structural


def schema(kind, version="v1", group=""):
    return structural(KINDS.find(group, version, kind), version)


PODS = schema("pods")  # before any example is given its time


def strategic_merge(document, patch, *kind, **named):
    present = schema(*kind, **named) if kind else PODS
    return strategic.strategic_merge(document, patch, present)


def pod(*containers, **spec):
    return {"spec": {"containers": list(containers), **spec}}


A = {"name": "a", "image": "one", "env": [{"name": "X", "value": "1"}]}
B = {"name": "b", "image": "two"}


def test_containers_are_merged_by_name():
    patched = strategic_merge(pod(A, B), pod({"name": "b", "image": "three"}, {"name": "c"}))
    assert patched == pod(A, {"name": "b", "image": "three"}, {"name": "c"})


def test_new_items_come_first():
    assert strategic_merge(pod(A), pod(B)) == pod(B, A)
    assert strategic_merge(pod(A, B), pod({"name": "c"}, A)) == pod({"name": "c"}, A, B)


def test_lists_within_lists_are_merged():
    change = {"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}]}
    patched = strategic_merge(pod(A), pod(change))
    assert patched["spec"]["containers"] == [{**A, "env": change["env"]}]


def test_an_element_is_deleted_by_its_key():
    assert strategic_merge(pod(A, B), pod({"name": "a", "$patch": "delete"})) == pod(B)


def test_a_list_is_replaced_on_demand():
    assert strategic_merge(pod(A, B), pod({"name": "c"}, {"$patch": "replace"})) == pod(
        {"name": "c"}
    )


def test_the_replace_directive_is_not_an_element():
    directive = {"$patch": "replace", "name": "b"}
    assert strategic_merge(pod(A, B), pod(directive, {"name": "c"})) == pod({"name": "c"})
    assert strategic_merge(pod(A, B), pod(5, {"$patch": "replace"})) == pod(5)


@pytest.mark.parametrize(
    ("directive", "fault"),
    [
        ("merge", "merging lists cannot yet be specified in the patch"),
        ("nosuch", "unknown patch type found: nosuch"),
        ([], "unknown patch type found: \\[\\]"),
    ],
)
def test_invalid_directives_of_list_elements_are_rejected(directive, fault):
    with pytest.raises(BadRequest, match=fault):
        strategic_merge(pod(A), pod({"$patch": directive, "name": "a"}))


def test_an_object_is_replaced_or_emptied_on_demand():
    document = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    replaced = strategic_merge(document, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}})
    assert replaced == {"metadata": {"labels": {"c": "3"}}}
    emptied = strategic_merge(document, {"metadata": {"labels": {"$patch": "delete"}}})
    assert emptied == {"metadata": {"labels": {}}}
    merged = strategic_merge(document, {"metadata": {"labels": {"$patch": "merge", "c": "3"}}})
    assert merged == {"metadata": {"labels": {"a": "1", "b": "2", "c": "3"}}}


def test_keys_that_are_not_retained_are_removed():
    volume = {"name": "v", "emptyDir": {}}
    change = {"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}
    patched = strategic_merge(pod(volumes=[volume]), {"spec": {"volumes": [change]}})
    assert patched["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/"}}]


def test_finalizers_are_a_set():
    document = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_merge(document, {"metadata": {"finalizers": ["b", "c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    assert strategic_merge(
        document, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    ) == {"metadata": {"finalizers": ["b"]}}


def test_the_last_finalizer_can_be_removed():
    document = {"metadata": {"finalizers": ["a"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(document, patch) == {"metadata": {"finalizers": []}}


def test_lists_without_a_key_are_replaced():
    taint = {"key": "a", "effect": "NoSchedule"}
    patched = strategic_merge({"spec": {"taints": [taint]}}, {"spec": {"taints": []}}, "nodes")
    assert patched == {"spec": {"taints": []}}
    namespace = {"spec": {"finalizers": ["kubernetes"]}}
    emptied = {"spec": {"finalizers": []}}
    assert strategic_merge(namespace, emptied, "namespaces") == emptied


def test_conditions_and_addresses_are_merged_by_type():
    document = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]}}
    assert strategic_merge(document, change, "nodes") == change
    kept = {"status": {"conditions": [{"type": "New"}]}}
    merged = strategic_merge(document, kept, "nodes")["status"]["conditions"]
    assert [each["type"] for each in merged] == ["New", "Ready"]


def test_merge_keys_depend_on_the_type_of_the_field():
    """Lists of one field name have merge keys in some types only."""
    one, two = {"name": "one"}, {"name": "two"}
    account = {"secrets": [one], "imagePullSecrets": [one]}
    change = {"secrets": [two], "imagePullSecrets": [two]}
    assert strategic_merge(account, change, "serviceaccounts") == {
        "secrets": [two, one],
        "imagePullSecrets": [two],
    }
    spec = strategic_merge(pod(imagePullSecrets=[one]), {"spec": {"imagePullSecrets": [two]}})
    assert spec["spec"]["imagePullSecrets"] == [two, one]
    policies = [{"resourceName": "cpu"}], [{"resourceName": "memory"}]
    old, new = ({**A, "resizePolicy": policy} for policy in policies)
    assert strategic_merge(pod(old), pod(new)) == pod(new)
    expected = [{"ip": "10.0.0.1"}], [{"ip": "10.0.0.2"}]
    addresses = [{"status": {"hostIPs": each}} for each in expected]
    assert strategic_merge(*addresses) == {"status": {"hostIPs": expected[1] + expected[0]}}
    first, second = ({"status": {"conditions": [{"type": name}]}} for name in ("A", "B"))
    assert len(strategic_merge(first, second, "jobs", group="batch")["status"]["conditions"]) == 2
    definitions = ("customresourcedefinitions", "v1", "apiextensions.k8s.io")
    assert strategic_merge(first, second, *definitions) == second


def test_the_patch_order_applies_and_other_items_keep_their_place():
    server = [{"name": name} for name in "abxc"]
    order = [{"name": name} for name in "cba"]
    patch = {"spec": {"$setElementOrder/containers": order, "containers": [{"name": "b", "n": 1}]}}
    names = [
        container["name"]
        for container in strategic_merge(pod(*server), patch)["spec"]["containers"]
    ]
    assert [name for name in names if name != "x"] == ["c", "b", "a"]
    assert sorted(names) == ["a", "b", "c", "x"]


def test_an_order_directive_alone_creates_no_list():
    patch = {"metadata": {"$setElementOrder/finalizers": ["a"]}}
    assert strategic_merge({"metadata": {}}, patch) == {"metadata": {}}


def test_null_removes_a_field():
    assert strategic_merge(pod(A), {"spec": {"containers": None}}) == {"spec": {}}
    assert strategic_merge({}, {"spec": {"a": {"b": None}}}) == {"spec": {"a": {}}}


@pytest.mark.parametrize("order", [[], ["b"], ["c", "b"]])
def test_an_order_directive_includes_all_patched_items_in_order(order):
    patch = pod({"name": "b", "image": "three"}, {"name": "c"}, {"name": "a", "$patch": "delete"})
    patch["spec"]["$setElementOrder/containers"] = [{"name": name} for name in order]
    with pytest.raises(BadRequest, match=r"doesn't match \$setElementOrder list"):
        strategic_merge(pod(A, B), patch)
    patch["spec"]["$setElementOrder/containers"] = [{"name": name} for name in "bxc"]
    patched = strategic_merge(pod(A, B), patch)
    assert [container["name"] for container in patched["spec"]["containers"]] == ["b", "c"]


def test_an_order_directive_of_scalars_includes_all_added_values():
    patch = {"metadata": {"$setElementOrder/finalizers": ["old"], "finalizers": ["new"]}}
    with pytest.raises(BadRequest, match="doesn't match"):
        strategic_merge({"metadata": {"finalizers": ["old"]}}, patch)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([], "invalid JSON document"),
        ({"$patch": "grow"}, "unknown patch type found: grow"),
        (pod({"image": "x"}), "does not contain declared merge key: name"),
        (pod("x"), "does not contain declared merge key: name"),
        (pod({"name": {"x": None}}), "does not contain declared merge key: name"),
        ({"metadata": {"finalizers": [{}]}}, "invalid patch format of primitive list"),
        (
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
            "invalid patch format of primitive list",
        ),
        (
            {"metadata": {"$setElementOrder/finalizers": "a"}},
            "invalid patch format of setElementOrder list",
        ),
        ({"$retainKeys": "a"}, "invalid patch format of retainKeys"),
        ({"$retainKeys": ["a"], "b": 1}, "invalid patch format of retainKeys"),
    ],
)
def test_invalid_patches_are_bad_requests(patch, message):
    with pytest.raises(BadRequest, match=message):
        strategic_merge({}, patch)


KEYS = st.sampled_from(["spec", "metadata", "containers", "finalizers", "name"])
DIRECTIVES = ["$patch", "$retainKeys", "$setElementOrder/finalizers", "$setElementOrder/containers"]
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: (
        st.dictionaries(
            KEYS | st.sampled_from(DIRECTIVES),
            inner,
            max_size=3,
        )
        | st.lists(inner, max_size=2)
    ),
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_any_patch_gives_a_document_or_a_bad_request(document, patch):
    before = copied(document), copied(patch)
    try:
        patched = strategic_merge(document, patch)
    except BadRequest:
        return
    finally:
        assert (document, patch) == before
    assert isinstance(patched, dict)


PLAIN = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@given(
    st.dictionaries(st.sampled_from("abc"), PLAIN), st.dictionaries(st.sampled_from("abc"), PLAIN)
)
def test_without_lists_and_directives_it_is_a_merge_patch(document, patch):
    assert strategic_merge(document, patch) == merge_patch(document, patch)


def test_keys_to_retain_are_looked_up_not_searched():
    """A ConfigMap may have a hundred thousand keys: a linear search would take minutes."""
    document = {"data": {Compared(f"a{number}"): "" for number in range(300)}}
    retained = [f"a{number}" for number in range(150, 450)]
    Compared.times = 0
    patched = strategic_merge(document, {"data": {"$retainKeys": retained}}, "configmaps")
    assert list(patched["data"]) == [f"a{number}" for number in range(150, 300)]
    assert Compared.times < 1000
