"""Lists: pages, selectors, revisions, tables."""

import base64
import json

import pytest
from tests.conformance.api import PARTIAL, PARTIAL_LIST, TABLE, names, refused
from tests.conformance.manifests import core, replica_set, secret, sets

from corral.api import yaml

pytestmark = pytest.mark.conformance


@pytest.fixture
def five(api, namespace) -> str:
    """The path of five secrets, ``a`` to ``e``."""
    for name in "edcba":
        document = secret(name)
        document["metadata"]["labels"] = {"name": name, "vowel": str(name in "ae").lower()}
        api.create(core("secrets", namespace), document)
    return core("secrets", namespace)


def test_pages_are_of_one_revision(api, five):
    first = api.get_document(five, limit=2)
    assert names(first["items"]) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    api.remove(f"{five}/c")
    api.create(five, secret("bb"))
    second = api.get_document(five, limit=2, **{"continue": first["metadata"]["continue"]})
    assert names(second["items"]) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.get_document(five, limit=2, **{"continue": second["metadata"]["continue"]})
    assert names(last["items"]) == ["e"]
    assert not last["metadata"].get("continue")
    assert "remainingItemCount" not in last["metadata"]
    assert names(api.items(five)) == ["a", "b", "bb", "d", "e"]


def test_pages_keep_the_selector(api, five):
    query = {"limit": 1, "labelSelector": "vowel=true"}
    first = api.get_document(five, **query)
    assert names(first["items"]) == ["a"]
    assert "remainingItemCount" not in first["metadata"]
    last = api.get_document(five, **query, **{"continue": first["metadata"]["continue"]})
    assert names(last["items"]) == ["e"]


def test_a_page_that_ends_exactly_is_the_last(api, five):
    assert not api.get_document(five, limit=5)["metadata"].get("continue")


def test_a_continued_list_cannot_have_a_revision(api, five):
    token = api.get_document(five, limit=2)["metadata"]["continue"]
    answer = api.get(five, params={"continue": token, "resourceVersion": "5"})
    message = refused(answer, 400, "BadRequest")["message"]
    assert message == ("specifying resource version is not allowed when using continue")


def test_a_modified_continue_token_is_rejected(api, five):
    token = api.get_document(five, limit=2)["metadata"]["continue"]
    padded = token + "=" * (-len(token) % 4)
    content = json.loads(base64.urlsafe_b64decode(padded))
    assert content["v"] == "meta.k8s.io/v1"
    for change in ({"v": "v9"}, {"rv": 0}, {"start": "../../secrets/x"}, {"rv": "x"}):
        forged = base64.urlsafe_b64encode(json.dumps(content | change).encode()).decode()
        answer = api.get(five, params={"continue": forged.rstrip("=")})
        assert answer.status_code in (200, 400, 410), answer.text
        if answer.status_code == 200:
            assert {item["metadata"]["namespace"] for item in answer.json()["items"]} <= {
                five.split("/")[4]
            }


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("name=a", "a"),
        ("name==a", "a"),
        ("name!=a", "bcde"),
        ("name in (a, c)", "ac"),
        ("name notin (a,c)", "bde"),
        ("name,vowel=true", "ae"),
        ("!name", ""),
        ("nosuch!=x", "abcde"),
        ("", "abcde"),
    ],
)
def test_label_selectors(api, five, selector, expected):
    assert names(api.items(five, labelSelector=selector)) == list(expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "bcde"),
        ("metadata.name=a,metadata.name=b", ""),
        ("metadata.namespace=nosuch", ""),
        ("metadata.name=nosuch", ""),
    ],
)
def test_field_selectors(api, five, selector, expected):
    assert names(api.items(five, fieldSelector=selector)) == list(expected)


def test_a_list_of_an_exact_revision(api, five):
    then = api.get_document(five)["metadata"]["resourceVersion"]
    api.remove(f"{five}/a")
    api.change(f"{five}/b", {"data": {"later": "MQ=="}})
    exact = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    listed = api.get_document(five, **exact)
    assert names(listed["items"]) == list("abcde")
    assert not listed["items"][1].get("data")
    assert listed["metadata"]["resourceVersion"] == then
    newer = {"resourceVersion": then, "resourceVersionMatch": "NotOlderThan"}
    assert names(api.items(five, **newer)) == list("bcde")
    assert names(api.items(five, resourceVersion="0")) == list("bcde")


def test_a_list_includes_the_last_write(api, five):
    made = api.create(five, secret("z"))
    listed = api.get_document(five)
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert (
        listed["items"][-1]
        == {key: value for key, value in made.items() if key not in ("kind", "apiVersion")}
        or listed["items"][-1] == made
    )


def test_a_namespace_that_does_not_exist_is_empty(api):
    listed = api.get_document(core("secrets", "nosuch"))
    assert listed["items"] == []
    assert listed["kind"] == "SecretList"


def test_lists_of_all_namespaces_are_sorted(api, five):
    keys = [
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in api.items(core("secrets"))
    ]
    assert keys == sorted(keys)


def test_the_kind_of_a_list(api, namespace):
    listed = api.get_document(sets(namespace))
    assert (listed["kind"], listed["apiVersion"]) == (
        "VirtualMachineInstanceReplicaSetList", "kubevirt.io/v1",
    )  # fmt: skip
    assert listed["items"] == []
    assert listed["metadata"]["resourceVersion"].isdigit()


def test_a_table(api, namespace):
    api.create(sets(namespace), replica_set("a", 0))
    table = api.get(sets(namespace), headers={"Accept": TABLE}).json()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["columnDefinitions"][0].items() >= {
        "name": "Name", "type": "string", "format": "name", "priority": 0,
    }.items()  # fmt: skip
    assert [column["type"] for column in table["columnDefinitions"]] == [
        "string", "integer", "integer", "integer", "date",
    ]  # fmt: skip
    (row,) = table["rows"]
    assert row["cells"][:2] == ["a", 0]
    assert row["cells"][4].endswith("s")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "spec" not in row["object"]
    one = api.get(sets(namespace, "a"), headers={"Accept": TABLE}).json()
    assert [row["cells"][0] for row in one["rows"]] == ["a"]


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_table_includes_the_requested_objects(api, five, include):
    answer = api.get(five, headers={"Accept": TABLE}, params={"includeObject": include})
    (row, *_) = answer.json()["rows"]
    if include == "None":
        assert row.get("object") is None
    else:
        kind = {"Metadata": "PartialObjectMetadata", "Object": "Secret"}[include]
        assert row["object"]["kind"] == kind


def test_a_table_has_pages(api, five):
    headers = {"Accept": TABLE}
    first = api.get(five, headers=headers, params={"limit": 2}).json()
    assert [row["cells"][0] for row in first["rows"]] == ["a", "b"]
    rest = api.get(
        five, headers=headers, params={"continue": first["metadata"]["continue"], "limit": 500}
    ).json()
    assert [row["cells"][0] for row in rest["rows"]] == ["c", "d", "e"]
    assert "continue" not in rest["metadata"]


def test_an_empty_table(api, namespace):
    table = api.get(sets(namespace), headers={"Accept": TABLE}).json()
    assert table["rows"] == []


def test_partial_object_metadata_lists(api, five):
    listed = api.get(five, headers={"Accept": PARTIAL_LIST}).json()
    assert listed["kind"] == "PartialObjectMetadataList"
    assert names(listed["items"]) == list("abcde")
    assert all("data" not in item for item in listed["items"])
    one = api.get(f"{five}/a", headers={"Accept": PARTIAL}).json()
    assert one["kind"] == "PartialObjectMetadata"
    assert set(one) == {"kind", "apiVersion", "metadata"}


def test_an_error_is_no_table(api, namespace):
    answer = api.get(sets(namespace, "nosuch"), headers={"Accept": TABLE})
    refused(answer, 404, "NotFound")


def test_a_collection_is_deleted_by_selector(api, five):
    answer = api.remove(five, labelSelector="vowel=true")
    assert answer["kind"] in ("SecretList", "Status")
    assert names(api.items(five)) == list("bcd")
    api.remove(five)
    assert api.items(five) == []


def test_lists_in_yaml_and_json_are_equal(api, five):
    listed = api.get(five).json()
    # other tests write meanwhile: the same revision is asked for, so that both say the same
    exact = f"resourceVersion={listed['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    accept = {"Accept": "application/yaml, application/json;q=0.5"}
    answer = api.get(f"{five}?{exact}", headers=accept)
    assert answer.headers["content-type"] == "application/yaml"
    assert yaml.load(answer.text) == listed
