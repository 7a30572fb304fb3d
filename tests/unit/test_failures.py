"""What failures are called."""

import asyncio

import pytest

from corral.failures import describe


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (TimeoutError(), "it took too long"),
        (TimeoutError("no answer in 3 s"), "no answer in 3 s"),
        (EOFError(), "EOFError"),
        (ConnectionResetError(" "), "ConnectionResetError"),
    ],
)
def test_no_failure_is_without_words(error, words):
    assert describe(error) == words


async def test_what_asyncio_gives_up_is_said():
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
    assert str(raised.value) == ""
    assert describe(raised.value) == "it took too long"
