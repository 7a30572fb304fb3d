"""Virtual time that goes on at once."""

import pytest
from tests.sim.cluster import Inline

from corral import aio
from corral.node.images import progress


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    """Replace all thread pools, as that of the event loop, by calls."""
    monkeypatch.setattr(aio, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(progress, "_THREADS", Inline())


def pytest_itemcollected(item: pytest.Item) -> None:
    """No thread and no socket has a part here: when nothing can go on, time can.

    By itself the clock waits for 42 empty rounds of the event loop at every step.
    """
    if item.get_closest_marker("looptime"):
        item.add_marker(pytest.mark.looptime(noop_cycles=0))
