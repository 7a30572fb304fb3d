"""Events are refused that the real server refuses; the newer API takes whole reports alone."""

import pytest

from corral.api.kinds.core import event
from corral.api.kinds.core.event import EVENT, EVENTS_EVENT

OLDER = {
    "metadata": {"name": "cows.1", "namespace": "farm"},
    "involvedObject": {"kind": "Herd", "name": "cows", "namespace": "farm"},
    "reason": "Fed",
    "type": "Normal",
    "count": 1,
    "source": {"component": "shepherd"},
    "firstTimestamp": "2026-01-31T12:00:00Z",
}
NEWER = {
    "metadata": {"name": "cows.1", "namespace": "farm"},
    "regarding": {"kind": "Herd", "name": "cows", "namespace": "farm"},
    "reason": "Fed",
    "action": "Feeding",
    "type": "Normal",
    "eventTime": "2026-01-31T12:00:00.000001Z",
    "reportingController": "example.com/shepherd",
    "reportingInstance": "shepherd-0",
    "note": "fed them",
}


def messages(kind, document, old=None):
    documents = [None if each is None else dict(each) for each in (document, old)]
    for each in documents if kind is EVENTS_EVENT else ():
        if each is not None:
            event.to_core(each)
    causes = kind.validate(*documents, "").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def about(**reference):
    return {"involvedObject": {"kind": "Herd", "name": "cows", **reference}}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        (
            about(namespace="stable"),
            [
                'involvedObject.namespace: Invalid value: "stable": does not match event.namespace',
            ],
        ),
        (
            about(),
            ['involvedObject.namespace: Invalid value: "": does not match event.namespace'],
        ),
        (about() | {"metadata": {"namespace": "default"}}, []),
        ({"action": "", "reason": "", "type": ""}, []),
        (
            {"eventTime": "2026-01-31T12:00:00.000001Z", "reportingComponent": "shepherd"},
            ["reportingInstance: Required value", "action: Required value"],
        ),
    ],
)
def test_core_v1_accepts_both_forms_of_events(changes, wrong):
    assert messages(EVENT, OLDER | changes) == wrong


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"regarding": {"kind": "Herd", "namespace": "stable"}}, []),
        ({"eventTime": None}, ["eventTime: Required value"]),
        ({"action": ""}, ["action: Required value"]),
        ({"action": "a" * 129}, ['action: Invalid value: "": can have at most 128 characters']),
        ({"note": "a" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
        ({"type": "Bad"}, ['type: Invalid value: "": has invalid value: Bad']),
        ({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset']),
        (
            {"deprecatedSource": {"component": "x"}},
            ['source: Invalid value: "": needs to be unset'],
        ),
        (
            {"series": {"count": 1}},
            [
                'series.count: Invalid value: "": should be at least 2',
                "series.lastObservedTime: Required value",
            ],
        ),
    ],
)
def test_events_k8s_io_accepts_the_newer_form(changes, wrong):
    assert messages(EVENTS_EVENT, NEWER | changes) == wrong


def test_events_k8s_io_allows_changes_of_series_only():
    series = {"count": 2, "lastObservedTime": "2026-01-31T12:05:00.000001Z"}
    assert messages(EVENTS_EVENT, NEWER | {"series": series}, NEWER) == []
    assert messages(EVENTS_EVENT, NEWER | {"note": "again"}, NEWER) == [
        'message: Invalid value: "again": field is immutable'
    ]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z", True),
        ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00.000000+01:00", True),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000001Z", False),
        ("2026-01-31T12:00:00Z", None, False),
        ("noon", "2026-01-31T12:00:00Z", False),
    ],
)
@pytest.mark.parametrize("field", ["eventTime", "firstTimestamp", "lastTimestamp"])
def test_equal_times_in_different_spelling_are_no_change(field, before, after, same):
    if field != "eventTime":
        field = f"deprecated{field[0].upper()}{field[1:]}"
    found = messages(EVENTS_EVENT, NEWER | {field: after}, NEWER | {field: before})
    assert [each.endswith("field is immutable") for each in found] == ([] if same else [True])
