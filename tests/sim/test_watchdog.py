"""Machines whose guest no longer feeds its watchdog."""

import pytest
from tests.sim.cluster import cluster

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime

KEY = Key("default", "guarded")


def guarded(action):
    watchdog = {"name": "watchdog", "i6300esb": {"action": action} if action else {}}
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {
            "domain": {
                "memory": {"guest": "64Mi"},
                "devices": {"watchdog": watchdog},
            },
        },
    }


async def in_phase(c, phase):
    async def is_in_phase():
        return (
            await c.client.get(VirtualMachineInstance, KEY.name, KEY.namespace)
        ).status.phase == phase

    await c.until(is_in_phase)
    return await c.client.get(VirtualMachineInstance, KEY.name, KEY.namespace)


async def events_of(c):
    return [(e.type, e.message) for e in await c.events(KEY.name) if e.reason == "WatchdogExpired"]


@pytest.mark.parametrize(
    ("action", "follows", "phase", "deed"),
    [
        ("", Change.REBOOTED, "Running", "it is reset"),
        ("shutdown", Change.POWERED_OFF, "Succeeded", "it is asked to shut down"),
        ("poweroff", None, "Failed", "it is powered off"),
    ],
)
async def test_a_watchdog_performs_its_action(action, follows, phase, deed):
    async with cluster() as c:
        await c.client.create(VirtualMachineInstance, guarded(action))
        machine = await in_phase(c, "Running")
        c.end(
            machine,
            Change.WATCHDOG_POWERED_OFF if action == "poweroff" else Change.WATCHDOG_EXPIRED,
        )
        if follows is not None:
            c.end(machine, follows)

        async def is_reported():
            return await events_of(c)

        await c.until(is_reported)
        machine = await in_phase(c, phase)
        assert await events_of(c) == [
            ("Warning", f"The guest no longer feeds its watchdog: {deed}.")
        ]
        if action == "poweroff":
            events = [
                (e.type, e.message) for e in await c.events(KEY.name) if e.reason == "Stopped"
            ]
            why = "The VirtualMachineInstance was powered off by its watchdog."
            assert events == [("Warning", why)]
