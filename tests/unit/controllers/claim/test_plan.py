"""Which claims wait, in which order, and when they expire."""

from datetime import timedelta

import pytest
from tests.unit.controllers.claim.make import CREATED, claim, pool

from corral.api.time import parse_rfc3339
from corral.controllers.claim.plan import (
    expiry,
    in_order,
    is_overdue,
    is_pending,
    machine_annotations,
    machine_labels,
)

BOUND = {"vmi": {"name": "test1", "uid": "u"}, "boundAt": "2026-01-01T00:01:00Z"}
EXPIRED = {"conditions": [{"type": "Expired", "status": "True"}]}


def names(claims):
    return [each.metadata.name for each in claims]


def test_claims_are_bound_in_the_order_of_their_arrival():
    """The resourceVersion tells, as a number: 9 comes before 10."""
    first, third = claim("b", version="9"), claim("a", version="11")
    second = claim("c", version="40", status={"arrival": 10})  # it has changed since
    assert names(in_order([third, second, first])) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("status", "waits"), [({}, True), ({"arrival": 7}, True), (BOUND, False), (EXPIRED, False)]
)
def test_a_claim_waits_until_it_is_bound_or_expires(status, waits):
    assert is_pending(claim(status=status)) is waits


def test_a_deleted_claim_does_not_wait():
    deleted = claim()
    deleted.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert not is_pending(deleted)


@pytest.mark.parametrize(
    ("status", "spec", "expected"),
    [
        ({}, {}, None),
        ({}, {"ttl": "1m"}, None),
        ({}, {"pendingTimeout": "30s"}, ("PendingTimeout", "00:00:30")),
        (BOUND, {"pendingTimeout": "30s"}, None),
        (BOUND, {"ttl": "1m"}, ("TTL", "00:02:00")),
        (
            BOUND,
            {"ttl": "1m", "shutdownTime": "2026-01-01T00:01:30Z"},
            ("ShutdownTime", "00:01:30"),
        ),
        (BOUND, {"ttl": "1m", "shutdownTime": "2026-01-01T01:00:00Z"}, ("TTL", "00:02:00")),
        ({}, {"shutdownTime": "2026-01-01T00:00:05Z"}, ("ShutdownTime", "00:00:05")),
    ],
)
def test_a_claim_expires_by_whichever_limit_comes_first(status, spec, expected):
    found = expiry(claim(status=status, **spec))
    if expected is None:
        assert found is None
    else:
        assert (found.reason, f"{found.moment:%H:%M:%S}") == expected


@pytest.mark.parametrize(("seconds", "overdue"), [(29, False), (30, True), (31, True)])
def test_a_claim_is_overdue_from_the_moment_at_which_it_expires(seconds, overdue):
    now = parse_rfc3339(CREATED) + timedelta(seconds=seconds)
    assert is_overdue(claim(pendingTimeout="30s"), now) is overdue
    assert not is_overdue(claim(), now)


def test_a_machine_has_no_labels_of_a_set():
    """The set would count it among its own."""
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "X", "name": "test"}
    assert machine_labels(claim(), pool(targetRef=reference)) == {"corral.dev/claim": "job"}
    template = {"metadata": {"labels": {"app": "lab"}}, "spec": {"domain": {"devices": {}}}}
    labels = machine_labels(claim(), pool(template=template))
    assert labels == {"app": "lab", "corral.dev/claim": "job"}


@pytest.mark.parametrize(
    ("data", "annotations"),
    [
        (None, {}),
        ({"inline": "#!/bin/sh\n"}, {"corral.dev/user-data": "#!/bin/sh\n"}),
        ({"secretRef": {"name": "seed"}}, {"corral.dev/user-data-secret": "seed"}),
    ],
)
def test_a_machine_is_annotated_with_its_user_data(data, annotations):
    made = claim() if data is None else claim(userData=data)
    assert machine_annotations(made) == annotations
