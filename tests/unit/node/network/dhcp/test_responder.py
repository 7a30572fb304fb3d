"""What a responder does without a network; with one: tests/e2e/network/test_dhcp.py."""

import asyncio

import pytest

from corral.node.network.dhcp import Link, Responder, advertise
from corral.node.network.dhcp.responder import ADVERTISE_SECONDS


class Told:
    """Stands in for a responder, and counts."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advertise(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


@pytest.mark.looptime
async def test_guests_are_told_of_their_routers_again_and_again():
    first, second = Told(), Told()
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


def test_one_that_never_started_is_closed_where_no_loop_runs():
    """As where the rest of a pod's network cannot be made, in a thread."""
    responder = Responder(Link(device="no-such-device", guest="", router=""))
    responder.open()
    responder.close()
