"""Bytes that are held for users: who has how many, and who is sent away."""

import pytest

from corral.api.errors import TooManyRequests
from corral.api.request import Request
from corral.server.flowcontrol.memory_budget import SMALL_BYTES, Budget, size_of_body

LARGE = SMALL_BYTES + 1


def sized(**headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return size_of_body(Request(method="POST", path="/", headers=named), 1000)


def test_a_user_has_a_share():
    budget = Budget(3 * LARGE, 100 * LARGE)
    with budget.reserve("ann", LARGE), budget.reserve("ann", LARGE):
        budget.check_room("ann", LARGE)
        with budget.reserve("ann", LARGE):
            with pytest.raises(TooManyRequests) as refused:
                budget.check_room("ann")
            assert refused.value.details.retry_after_seconds == 1
            budget.check_room("bob", LARGE)
        budget.check_room("ann", LARGE)
    assert budget.used == 0


def test_the_total_is_limited_but_each_user_gets_one_reservation():
    budget = Budget(3 * LARGE, 3 * LARGE)
    with budget.reserve("ann", LARGE), budget.reserve("bob", 2 * LARGE):
        with pytest.raises(TooManyRequests):
            budget.check_room("ann")
        budget.check_room("eve", LARGE)


def test_a_reservation_larger_than_the_share_is_admitted_alone():
    budget = Budget(LARGE, LARGE)
    budget.check_room("ann", 5 * LARGE)
    with budget.reserve("ann", 5 * LARGE), pytest.raises(TooManyRequests):
        budget.check_room("ann", LARGE)


def test_small_reservations_are_not_counted():
    budget = Budget(LARGE, LARGE)
    with budget.reserve("ann", SMALL_BYTES):
        assert budget.used == 0


def test_the_threshold_of_small_reservations_is_configurable():
    budget = Budget(LARGE, LARGE, small=10)
    with budget.reserve("ann", 11), budget.reserve("ann", 10):
        assert budget.used == 11


def test_a_failure_releases_the_bytes():
    budget = Budget(LARGE, LARGE)
    with pytest.raises(ValueError, match="x"), budget.reserve("ann", LARGE):
        raise ValueError("x")
    budget.check_room("ann", LARGE)


def test_the_size_of_a_body_is_content_length_or_the_maximum():
    assert sized() == 0
    assert sized(content_length="10") == 10
    assert sized(content_length="1001") == sized(content_length="9" * 5000) == 1000
    assert sized(transfer_encoding="chunked") == sized(content_length="x", transfer_encoding="a")
    assert sized(transfer_encoding="chunked") == 1000
