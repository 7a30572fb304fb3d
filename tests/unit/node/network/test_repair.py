"""When the machine network is repaired, in virtual time."""

import asyncio

import pytest

from corral.aio import Background
from corral.node.health import Health
from corral.node.network.netlink import NetworkError
from corral.node.network.repair import MAX_INTERVAL_SECONDS, RETRY_SECONDS, NetworkRepair

pytestmark = pytest.mark.looptime


class Network:
    """Records repairs, and fails if ``error`` is set."""

    def __init__(self):
        self.repaired = []
        self.checked = []
        self.error = ""
        self.obstructed = False
        self.health = Health("the network", lambda: None)
        self.repair = NetworkRepair(
            self.health, restore=self.restore, check_host_link=self.check_host_link
        )

    async def restore(self):
        self.repaired.append(asyncio.get_running_loop().time())
        if self.error:
            raise NetworkError(self.error)

    async def check_host_link(self):
        self.checked.append(asyncio.get_running_loop().time())
        return self.obstructed


@pytest.fixture
async def network():
    return Network()


def start(network, tasks):
    tasks.start(network.repair.run(obstructed=network.obstructed), name="repair")


async def test_without_a_loss_nothing_is_repaired(network):
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(3600)
    assert network.repaired == network.checked == []


async def test_several_losses_cause_one_repair_at_once(network):
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(100)
        for _ in range(3):
            network.repair.notify_loss()
        await asyncio.sleep(3600)
    assert network.repaired == network.checked == [pytest.approx(100, abs=1)]


async def test_an_obstructed_host_link_is_checked_at_growing_intervals(network):
    network.obstructed = True
    async with Background() as tasks:
        start(network, tasks)
        await asyncio.sleep(600)
        assert network.repaired == []
        pauses = [b - a for a, b in zip([0, *network.checked], network.checked, strict=False)]
        assert pauses[:5] == pytest.approx([5, 10, 20, 40, 60])
        assert set(map(round, pauses[5:])) == {MAX_INTERVAL_SECONDS}
        network.obstructed = False
        await asyncio.sleep(MAX_INTERVAL_SECONDS)
        looks = len(network.checked)
        await asyncio.sleep(3600)
        assert len(network.checked) == looks


async def test_a_failed_repair_is_retried(network):
    network.error = "no memory"
    async with Background() as tasks:
        start(network, tasks)
        network.repair.notify_loss()
        await asyncio.sleep(3 * RETRY_SECONDS)
        assert (
            network.health.problem == "removed parts of the network cannot be restored: no memory"
        )
        assert len(network.repaired) == 3
        network.error = ""
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert network.health.problem == ""
        tried = len(network.repaired)
        await asyncio.sleep(3600)
        assert len(network.repaired) == tried == 4
