"""Who sits at a console, and who comes next."""

import asyncio

import pytest

from corral.node.hypervisor import GuestError
from corral.node.kubelet.console import LEAVING_SECONDS, Consoles, Occupied

pytestmark = pytest.mark.looptime


class Silent:
    """A websocket whose methods are not called."""


async def connect_first(began, leave):
    began.set()
    await leave.wait()
    raise GuestError("it went")


async def connect_next():
    raise GuestError("let in")


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(LEAVING_SECONDS / 2, GuestError), (LEAVING_SECONDS * 2, Occupied)]
)
async def test_a_client_that_preserves_sessions_waits_for_a_leaving_one(seconds, outcome):
    consoles, began, leave = Consoles(), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(
        consoles.join("screen", Silent(), lambda: connect_first(began, leave))
    )
    await began.wait()
    asyncio.get_running_loop().call_later(seconds, leave.set)
    with pytest.raises(outcome):
        await consoles.join("screen", Silent(), connect_next, displace=False)
    with pytest.raises(GuestError, match="it went"):
        await first


async def test_of_two_waiting_clients_one_gets_the_console():
    consoles, began, leave = Consoles(), asyncio.Event(), asyncio.Event()
    sits, never = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(
        consoles.join("screen", Silent(), lambda: connect_first(began, leave))
    )
    await began.wait()
    asyncio.get_running_loop().call_later(LEAVING_SECONDS / 2, leave.set)
    second = asyncio.create_task(
        consoles.join("screen", Silent(), lambda: connect_first(sits, never), displace=False)
    )
    await asyncio.sleep(0)
    with pytest.raises(Occupied):
        await consoles.join("screen", Silent(), connect_next, displace=False)
    assert sits.is_set()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
