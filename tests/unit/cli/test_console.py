"""How a console ends is told."""

import asyncio

import pytest

from corral.cli.console import _talk
from corral.cli.problem import Problem
from corral.client.stream import StreamLost


class Ending:
    """A stream that prints something, and ends as a test says."""

    def __init__(self, error: Exception | None = None, close_reason: str = "") -> None:
        self._error = error
        self.close_reason = close_reason

    async def __aiter__(self):
        yield b"hello"
        if self._error is not None:
            raise self._error


@pytest.fixture(autouse=True)
def nobody_types(monkeypatch):
    with open("/dev/null") as nothing:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def test_a_machine_that_hangs_up_ends_it(capfdbinary):
    asyncio.run(_talk(Ending(), "web"))
    said = capfdbinary.readouterr()
    assert said.out == b"hello"
    assert b"Successfully connected to web console." in said.err


def test_a_reason_is_told():
    with pytest.raises(Problem, match=r"^another client came$"):
        asyncio.run(_talk(Ending(close_reason="another client came"), "web"))


def test_a_lost_connection_is_told():
    with pytest.raises(Problem, match="The console was disconnected"):
        asyncio.run(_talk(Ending(StreamLost("")), "web"))
