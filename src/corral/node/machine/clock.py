"""Sets the clock of a guest that has stood still, through its agent."""

import time
from contextlib import suppress

import structlog

from corral.failures import describe
from corral.node.hypervisor import GuestAgent, GuestError, RefusedError

log = structlog.get_logger()


async def set_clock(agent: GuestAgent) -> bool:
    """Set a guest's clock; report whether that worked.

    A guest whose agent cannot corrects it by itself (NTP), sooner or later.

    The agent's own command needs hwclock in the guest, which small ones lack.
    """
    try:
        with suppress(RefusedError):
            await agent.set_time(time.time())
            return True
        done = await agent.run(("date", "-s", f"@{time.time():.0f}"))
    except GuestError as error:
        log.info("the clock of a guest is not set", error=describe(error))
        return False
    if done.exit_code:
        log.info("the clock of a guest is not set", error=f"date: exit code {done.exit_code}")
    return not done.exit_code
