"""When a network is put right, in virtual time."""

import asyncio

import pytest

from corral.aio import Background
from corral.node.health import Health
from corral.node.network.netlink import NetworkError
from corral.node.network.repair import LONGEST_SECONDS, RETRY_SECONDS, Healing

pytestmark = pytest.mark.looptime


class Network:
    """Notes when it is put right, and fails as it is told to."""

    def __init__(self):
        self.mended = []
        self.looked = []
        self.fails = ""
        self.obstructed = False
        self.health = Health("the network", lambda: None)
        self.healing = Healing(self.health, put_back=self.put_back, look_at_host=self.look_at_host)

    async def put_back(self):
        self.mended.append(asyncio.get_running_loop().time())
        if self.fails:
            raise NetworkError(self.fails)

    async def look_at_host(self):
        self.looked.append(asyncio.get_running_loop().time())
        return self.obstructed


@pytest.fixture
async def network():
    return Network()


def start(network, tasks):
    tasks.start(network.healing.run(obstructed=network.obstructed), name="healing")


async def test_while_nothing_is_lost_nobody_looks(network):
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(3600)
    assert network.mended == network.looked == []


async def test_what_is_lost_is_put_back_at_once_and_once(network):
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(100)
        for _ in range(3):
            network.healing.lost()
        await asyncio.sleep(3600)
    assert network.mended == network.looked == [pytest.approx(100, abs=1)]


async def test_what_stands_in_the_hosts_way_is_looked_at_more_and_more_seldom(network):
    network.obstructed = True
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(600)
        assert network.mended == []
        pauses = [b - a for a, b in zip([0, *network.looked], network.looked, strict=False)]
        assert pauses[:5] == pytest.approx([5, 10, 20, 40, 60])
        assert set(map(round, pauses[5:])) == {LONGEST_SECONDS}
        network.obstructed = False
        await asyncio.sleep(LONGEST_SECONDS)
        looks = len(network.looked)
        await asyncio.sleep(3600)
        assert len(network.looked) == looks


async def test_what_cannot_be_put_back_is_tried_again_until_it_can(network):
    network.fails = "no memory"
    async with Background() as tasks:
        start(network, tasks)
        network.healing.lost()
        await asyncio.sleep(3 * RETRY_SECONDS)
        assert network.health.problem == "what was removed cannot be put back: no memory"
        assert len(network.mended) == 3
        network.fails = ""
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert network.health.problem == ""
        tried = len(network.mended)
        await asyncio.sleep(3600)
        assert len(network.mended) == tried == 4
