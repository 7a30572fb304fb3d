"""The watchdog of a node as its agent starts, adopts and ends it."""

import os
from pathlib import Path
from types import SimpleNamespace

from corral.aio import Background
from corral.node.agent.self_fencing import WATCHDOG, SelfFencing, watchdog
from corral.node.fencing.lease import NodeLease
from corral.node.host.proc import runs

UNUSED = SimpleNamespace(values=list)


async def test_the_next_agent_takes_the_watchdog_over(tmp_path):
    NodeLease(tmp_path)
    first, second = watchdog(tmp_path), watchdog(tmp_path)
    try:
        pid = (await first.ensure()).identity.pid
        first.release()
        assert (await second.ensure()).identity.pid == pid
        assert Path(f"/proc/{pid}/exe").exists()
        assert os.getsid(pid) == pid
    finally:
        await second.end()
    assert not runs(tmp_path / WATCHDOG)


async def test_it_ends_if_the_node_says_that_the_agent_was_stopped(tmp_path):
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, watchdog(tmp_path))
    async with Background() as tasks:
        await fencing.start(tasks)
        assert fencing.condition().active
        assert runs(tmp_path / WATCHDOG)

        async def written():
            return True

        await fencing.end(written)
        assert not runs(tmp_path / WATCHDOG)
        assert fencing.condition().reason == "AgentStopped"


async def test_it_stays_if_the_api_server_cannot_be_told(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    async with Background() as tasks:
        await fencing.start(tasks)

        async def not_written():
            return False

        await fencing.end(not_written)
        assert runs(tmp_path / WATCHDOG)
    await helper.end()


async def test_a_node_without_its_watchdog_says_so(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    condition = fencing.condition()
    assert not condition.active
    assert "no watchdog" in condition.message
