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
async def test_the_timeout_of_a_request_is_at_most_a_minute(query, seconds):
    request = Request(method="GET", path="/version", query=query)
    assert (await within(deadline_of(request), given)).status == seconds


@pytest.mark.parametrize("text", ["soon", "30", "-5s", "1x", "5 s"])
async def test_an_invalid_timeout_is_rejected(text):
    request = Request(method="GET", path="/version", query=f"timeout={text}")
    with pytest.raises(BadRequest, match="invalid timeout specified in the request URL - "):
        deadline_of(request)


async def test_a_request_that_takes_too_long_is_a_timeout_error():
    request = Request(method="GET", path="/version", query="timeout=1ms")
    with pytest.raises(Timeout, match="did not complete within the allotted timeout"):
        await within(deadline_of(request), never)


async def test_a_timeout_error_within_a_handler_is_not_the_requests(monkeypatch):
    async def answer():
        raise TimeoutError("of somebody else")

    with pytest.raises(TimeoutError, match="of somebody else"):
        await within(deadline_of(Request(method="GET", path="/version")), answer)


@pytest.mark.looptime
async def test_requests_of_components_have_no_timeout(monkeypatch):
    monkeypatch.setattr(timeout, "MAX_SECONDS", 0.0)

    async def answer():
        await asyncio.sleep(3600)
        return Response()

    inside = Request(method="GET", path="/version", user=User(name="system:node:one"))
    assert (await within(deadline_of(inside), answer)).status == 200
