"""What a responder does without a network; with one: tests/e2e/network/test_dhcp.py."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from corral.node.network.dhcp import Link, Responder, advertise
from corral.node.network.dhcp.responder import ADVERTISE_SECONDS, TokenBucket


class CountingResponder:
    """Stands in for a responder, and counts."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advertise(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


@pytest.mark.looptime
async def test_router_advertisements_are_repeated():
    first, second = CountingResponder(), CountingResponder()
    guests = [first]
    task = asyncio.get_running_loop().create_task(advertise(lambda: guests))
    await asyncio.sleep(ADVERTISE_SECONDS + 1)
    guests.append(second)
    await asyncio.sleep(2 * ADVERTISE_SECONDS)
    task.cancel()
    assert [round(at / ADVERTISE_SECONDS) for at in first.times] == [1, 2, 3]
    assert [round(at / ADVERTISE_SECONDS) for at in second.times] == [2, 3]


async def test_a_link_without_leases_needs_no_socket():
    responder = Responder(Link(device="no-such-device", guest="", router=""))
    responder.open()
    responder.start()
    responder.close()
    responder.close()


def test_a_responder_that_never_started_can_be_closed():
    """As where the rest of a pod's network cannot be made, in a thread."""
    responder = Responder(Link(device="no-such-device", guest="", router=""))
    responder.open()
    responder.close()


def test_a_burst_passes_then_half_of_it_must_accumulate():
    bucket = TokenBucket(10, 20)
    assert [bucket.acquire(100) for _ in range(20)] == [0] * 20
    assert bucket.acquire(100) == 1
    assert [bucket.acquire(101) for _ in range(11)] == [0] * 10 + [pytest.approx(1)]


def test_accumulation_is_limited_to_a_burst():
    bucket = TokenBucket(10, 2)
    assert [bucket.acquire(1e6) > 0 for _ in range(3)] == [False, False, True]


@given(st.lists(st.floats(0, 3), max_size=200))
def test_no_interval_has_more_than_a_burst_plus_the_rate(pauses):
    bucket, now, acquired = TokenBucket(10, 20), 50.0, 0
    for pause in pauses:
        now += pause
        acquired += bucket.acquire(now) == 0
    assert acquired <= 20 + 10 * (now - 50) + 1e-6
