import pytest
from lightkube.models.core_v1 import ConfigMap

from corral.api.errors import InternalError, TooManyRequests
from corral.api.request import Request, Response
from corral.client.client import Client
from corral.client.retries import MOST_RETRIES, Retrying, retry_after

pytestmark = pytest.mark.looptime

FOUND = Response(body=b'{"metadata":{"name":"a"},"data":{"x":"y"}}')


class Server:
    """Answers in turn; the last response stays."""

    def __init__(self, *responses):
        self._responses = list(responses)
        self.requests = []

    async def send(self, request):
        self.requests.append(request)
        return self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]


def put_off(status=429, after="2"):
    return Response(status=status, headers=[("Retry-After", after)], body=b'{"reason":"x"}')


async def test_a_request_with_retry_after_is_retried(looptime):
    server = Server(put_off(), put_off(503, "3"), FOUND)
    found = await Client(Retrying(server)).get(ConfigMap, "a", "default")
    assert found.data == {"x": "y"}
    assert float(looptime) == 5


async def test_the_body_is_sent_again(looptime):
    server = Server(put_off(), FOUND)
    await Client(Retrying(server)).create(ConfigMap, {"data": {"x": "y"}}, "default")
    first, second = server.requests
    assert first.body == second.body != b""


async def test_retries_are_limited(looptime):
    server = Server(put_off())
    with pytest.raises(TooManyRequests):
        await Client(Retrying(server)).get(ConfigMap, "a", "default")
    assert len(server.requests) == MOST_RETRIES + 1


async def test_an_error_without_retry_after_is_raised(looptime):
    server = Server(Response(status=500, body=b"{}"))
    with pytest.raises(InternalError):
        await Client(Retrying(server)).get(ConfigMap, "a", "default")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "after", "seconds"),
    [
        (429, "7", 7),
        (429, "3600", 30),
        (503, "0", 0),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (409, "7", None),
        (200, "7", None),
    ],
)
async def test_retried_methods_and_codes(status, after, seconds):
    assert retry_after(put_off(status, after)) == seconds


async def test_streams_are_not_retried():
    async def lines():
        yield b"{}\n"

    server = Server(Response(body=lines()))
    response = await Retrying(server).send(Request(method="GET", path="/", query="watch=true"))
    assert [line async for line in response.body] == [b"{}\n"]
