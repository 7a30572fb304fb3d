import asyncio

import pytest

from corral.api.errors import Forbidden
from corral.reconcile.batch import MAX_IN_FLIGHT, for_each, slow_start_batch

pytestmark = pytest.mark.looptime


async def test_calls_run_concurrently_up_to_a_limit(looptime):
    running = most = done = 0

    async def act(_):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        done += 1

    assert await for_each(range(3 * MAX_IN_FLIGHT), act) == []
    assert (done, most, looptime) == (3 * MAX_IN_FLIGHT, MAX_IN_FLIGHT, 3)


async def test_errors_are_collected_and_stop_nothing():
    async def act(number):
        if number % 2:
            raise Forbidden(str(number))

    assert sorted(map(str, await for_each(range(6), act))) == ["1", "3", "5"]


async def test_a_slow_start_ends_at_the_first_error():
    tried = []

    async def act(number):
        tried.append(number)
        if number == 4:
            raise Forbidden("no")

    count, refused = await slow_start_batch(range(100), act)
    assert count == len(tried) == 7
    assert len(refused) == 1
    assert await slow_start_batch(range(100, 200), act) == (100, [])
