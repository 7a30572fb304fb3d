"""How long an answer may take."""

import asyncio

import pytest

from corral.api.errors import BadRequest, Timeout
from corral.api.request import Request, Response, User
from corral.server.request import timeout
from corral.server.request.timeout import MAX_SECONDS, deadline_of, within


async def never():
    await asyncio.get_running_loop().create_future()


async def given():
    """How many seconds an answer has that asks the event loop."""
    loop = asyncio.get_running_loop()
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]
    return Response(status=round(max(timer.when() for timer in timers) - loop.time()))


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", MAX_SECONDS),
        ("timeout=", MAX_SECONDS),
        ("timeout=0s", MAX_SECONDS),
        ("timeout=32s", 32),
        ("pretty=1&timeout=1m30s", MAX_SECONDS),
        ("watch=1&timeoutSeconds=7", MAX_SECONDS),
    ],
)
async def test_a_client_says_how_long_it_waits_up_to_a_minute(query, seconds):
    request = Request(method="GET", path="/version", query=query)
    assert (await within(deadline_of(request), given)).status == seconds


@pytest.mark.parametrize("text", ["soon", "30", "-5s", "1x", "5 s"])
async def test_a_time_that_is_none_is_refused(text):
    request = Request(method="GET", path="/version", query=f"timeout={text}")
    with pytest.raises(BadRequest, match="invalid timeout specified in the request URL - "):
        deadline_of(request)


async def test_what_takes_too_long_is_told_so():
    request = Request(method="GET", path="/version", query="timeout=1ms")
    with pytest.raises(Timeout, match="did not complete within the allotted timeout"):
        await within(deadline_of(request), never)


async def test_a_timeout_of_what_was_asked_is_not_that_of_the_request(monkeypatch):
    async def answer():
        raise TimeoutError("of somebody else")

    with pytest.raises(TimeoutError, match="of somebody else"):
        await within(deadline_of(Request(method="GET", path="/version")), answer)


@pytest.mark.looptime
async def test_components_of_this_process_wait_as_long_as_they_like(monkeypatch):
    monkeypatch.setattr(timeout, "MAX_SECONDS", 0.0)

    async def answer():
        await asyncio.sleep(3600)
        return Response()

    inside = Request(method="GET", path="/version", user=User(name="system:node:one"))
    assert (await within(deadline_of(inside), answer)).status == 200
