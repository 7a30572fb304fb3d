"""Watches, frame by frame, as informers and kubectl read them."""

import pytest
from tests.conformance.api import PARTIAL, STRATEGIC, TABLE, names, refused
from tests.conformance.manifests import core, replica_set, secret, sets

pytestmark = pytest.mark.conformance

INITIAL_EVENTS = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@pytest.fixture
def maps(api, namespace) -> str:
    """The path of two secrets, ``a`` and ``b``."""
    for name in ("a", "b"):
        api.create(core("secrets", namespace), secret(name, x="MA=="))
    return core("secrets", namespace)


def revision(api, path: str) -> str:
    return api.get_document(path)["metadata"]["resourceVersion"]


def heads(events: list[dict]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_sends_changes_after_the_list(api, maps):
    since = revision(api, maps)
    with api.watch(maps, resourceVersion=since) as events:
        made = api.create(maps, secret("c"))
        changed = api.change(f"{maps}/a", {"data": {"x": "MQ=="}})
        api.remove(f"{maps}/b")
        watched = [next(events) for _ in range(3)]
    assert heads(watched) == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert watched[0]["object"] == made
    assert watched[1]["object"] == changed
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watched]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > int(since)


@pytest.mark.parametrize("since", [None, "0"])
def test_a_watch_without_a_revision_begins_with_the_current_objects(api, maps, since):
    query = {} if since is None else {"resourceVersion": since}
    events = api.events(maps, **query)
    assert sorted(heads(events)) == [("ADDED", "a"), ("ADDED", "b")]


def test_initial_events_end_with_a_bookmark(api, maps):
    with api.watch(maps, **INITIAL_EVENTS) as events:
        watched = [next(events) for _ in range(3)]
        assert sorted(heads(watched[:2])) == [("ADDED", "a"), ("ADDED", "b")]
        bookmark = watched[2]
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "Secret"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        newest = max(int(one["object"]["metadata"]["resourceVersion"]) for one in watched[:2])
        assert int(metadata["resourceVersion"]) >= newest
        api.create(maps, secret("c"))
        assert heads([next(events)]) == [("ADDED", "c")]


def test_initial_events_of_an_empty_collection(api, namespace):
    with api.watch(core("secrets", namespace), **INITIAL_EVENTS) as events:
        assert next(events)["type"] == "BOOKMARK"


def test_initial_events_are_not_older_than_requested(api, maps):
    since = revision(api, maps)
    with api.watch(maps, **INITIAL_EVENTS, resourceVersion=since) as events:
        watched = [next(events) for _ in range(3)]
    assert watched[-1]["type"] == "BOOKMARK"
    assert int(watched[-1]["object"]["metadata"]["resourceVersion"]) >= int(since)


def test_initial_events_are_filtered_by_the_selector(api, maps):
    with api.watch(maps, **INITIAL_EVENTS, fieldSelector="metadata.name=b") as events:
        watched = [next(events) for _ in range(2)]
    assert [event["type"] for event in watched] == ["ADDED", "BOOKMARK"]
    assert watched[0]["object"]["metadata"]["name"] == "b"


def test_a_watch_ends_at_its_timeout(api, maps):
    assert api.events(maps, resourceVersion=revision(api, maps), timeoutSeconds=1) == []


def test_a_compacted_revision_is_gone(api, maps):
    """Versions that were superseded long ago, or are too many to keep, are forgotten."""
    then = revision(api, maps)
    page = api.get_document(maps, limit=1)["metadata"]["continue"]
    for number in range(60):
        api.change(f"{maps}/b", {"data": {"x": f"{number:04}" + "x" * 1_000_000}})
    events = api.events(maps, resourceVersion=then)
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert f"too old resource version: {then}" in status["message"]
    exact = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    refused(api.get(maps, params=exact), 410, "Expired")
    status = refused(api.get(maps, params={"continue": page}), 410, "Expired")
    fresh = status["metadata"]["continue"]
    assert names(api.items(maps, **{"continue": fresh})) == ["b"]


def test_objects_that_leave_the_selection_are_deleted_events(api, namespace):
    path = core("secrets", namespace)
    for name in ("a", "b"):
        api.create(path, secret(name) | {"metadata": {"name": name, "labels": {"in": name}}})
    with api.watch(path, labelSelector="in=a", resourceVersion=revision(api, path)) as events:
        api.change(f"{path}/a", {"metadata": {"labels": {"in": "b"}}})
        api.change(f"{path}/b", {"data": {"unseen": "MQ=="}})
        api.change(f"{path}/b", {"metadata": {"labels": {"in": "a"}}})
        api.change(f"{path}/b", {"data": {"seen": "MQ=="}})
        api.remove(f"{path}/b")
        watched = [next(events) for _ in range(4)]
    assert heads(watched) == [("DELETED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


def test_a_field_selector_watches_a_single_object(api, maps):
    since = revision(api, maps)
    query = {"resourceVersion": since, "fieldSelector": "metadata.name=b"}
    with api.watch(maps, **query) as events:
        api.change(f"{maps}/a", {"data": {"x": "MQ=="}})
        api.change(f"{maps}/b", {"data": {"x": "MQ=="}})
        assert heads([next(events)]) == [("MODIFIED", "b")]


def test_a_watch_of_all_namespaces_sees_each(api, namespace):
    path = core("secrets")
    with api.watch(path, resourceVersion=revision(api, path)) as events:
        api.create(core("secrets", namespace), secret("mine"))
        event = next(one for one in events if one["object"]["metadata"]["name"] == "mine")
        assert event["object"]["metadata"]["namespace"] == namespace


@pytest.mark.parametrize("form", ["/watch/", "/"])
def test_deprecated_watch_paths_work(api, maps, form):
    path = maps.replace("/api/v1/", f"/api/v1{form}")
    events = api.events(path)
    assert sorted(heads(events)) == [("ADDED", "a"), ("ADDED", "b")]
    assert heads(api.events(f"{path}/b")) == [("ADDED", "b")]


def test_a_table_is_watched_row_by_row(api, namespace):
    path = sets(namespace)
    api.create(path, replica_set("a", 0))
    with api.watch(path, accept=TABLE, resourceVersion="0") as events:
        first = next(events)
        table = first["object"]
        assert (first["type"], table["kind"]) == ("ADDED", "Table")
        assert [column["name"] for column in table["columnDefinitions"]] == [
            "Name", "Desired", "Current", "Ready", "Age",
        ]  # fmt: skip
        (row,) = table["rows"]
        assert row["cells"][:2] == ["a", 0]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        api.change(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
        later = next(
            one for one in events if one["object"]["rows"][0]["object"]["metadata"].get("labels")
        )
        assert later["object"]["columnDefinitions"] in (None, [])


def test_partial_object_metadata_can_be_watched(api, maps):
    events = api.events(maps, accept=PARTIAL)
    assert {event["object"]["kind"] for event in events} == {"PartialObjectMetadata"}
    assert {event["object"]["apiVersion"] for event in events} == {"meta.k8s.io/v1"}
    assert all("data" not in event["object"] for event in events)


def test_a_write_without_changes_sends_no_event(api, maps):
    before = api.get_document(f"{maps}/a")
    with api.watch(maps, resourceVersion=revision(api, maps)) as events:
        same = api.change(f"{maps}/a", {"data": {"x": "MA=="}})
        assert same == before
        assert api.replace(f"{maps}/a", before) == before
        assert api.change(f"{maps}/a", {"data": {"x": "MA=="}}, STRATEGIC) == before
        api.change(f"{maps}/b", {"data": {"x": "MQ=="}})
        assert heads([next(events)]) == [("MODIFIED", "b")]


def test_many_watchers_get_the_same_events(api, maps):
    since = revision(api, maps)
    with (
        api.watch(maps, resourceVersion=since) as one,
        api.watch(maps, resourceVersion=since) as two,
        api.watch(maps, resourceVersion=since, labelSelector="!none") as three,
    ):
        made = [api.create(maps, secret()) for _ in range(20)]
        for watcher in (one, two, three):
            assert [next(watcher)["object"] for _ in made] == made


def test_an_old_version_is_watched_in_that_version(api, namespace):
    api.create(sets(namespace), replica_set("a", 0))
    (event, *_) = api.events(sets(namespace).replace("/v1/", "/v1alpha3/"))
    assert event["object"]["apiVersion"] == "kubevirt.io/v1alpha3"


def test_a_watch_from_the_future_waits(api, maps):
    future = str(int(revision(api, maps)) + 1_000_000)
    answer = api.get(maps, params={"resourceVersion": future, "watch": "1", "timeoutSeconds": 1})
    assert (answer.status_code, answer.text) == (200, "")


def test_a_list_of_a_future_revision_is_rejected(api, maps):
    future = str(int(revision(api, maps)) + 1_000_000)
    status = refused(api.get(maps, params={"resourceVersion": future}), 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert status["details"]["retryAfterSeconds"] == 1
