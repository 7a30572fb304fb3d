"""Migrations and cancellations in random order, while agents and controllers die at random steps.

CORRAL_SEEDS=1000 runs a thousand of them.
"""

import asyncio
import random
from contextlib import suppress
from functools import partial

import pytest
from lightkube.models.core_v1 import Pod
from tests.sim.cluster import cluster
from tests.sim.migrations import cancel, migrate, running, slow, started
from tests.sim.seeds import seeds

from corral.api.errors import ApiError
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.cluster import disruption, pod_gc, scheduler

pytestmark = pytest.mark.looptime
CONCERNED = (scheduler.controller, pod_gc.controller, disruption.controller)
"""The stand-ins that have a part in it: with all of them a seed takes twice as long."""
NODES, MACHINES, ACTIONS = 3, 3, 12
KILLS = 6
"""The most kills of agents in one run; each comes at a step of a machine."""


class Chaos:
    """Kills agents at random steps, and starts them again some seconds later."""

    def __init__(self, c, dice):
        self._c = c
        self._dice = dice
        self._left = dice.randint(0, KILLS)
        self.doubled = []
        self.log = []

    def watch(self, name):
        self._c.agents[name]._step = partial(self._on_step, name)

    def _on_step(self, name, _uid, step):
        memories = running(self._c)
        if len(set(memories)) != len(memories):
            self.doubled.append((name, step))
        if self._left and self._dice.random() < 0.08 and self._c.alive(name):
            self._left -= 1
            victims = [name]
            if self._dice.random() < 0.3:
                victims = [each for each in self._c.agents if self._c.alive(each)]
            for each in victims:
                self.log.append((step, each))
                self._c.kill_agent(each)
                seconds = self._dice.uniform(0, 8)
                asyncio.get_running_loop().call_later(seconds, self._start, each)

    def _start(self, name):
        self._c.start_node(name)
        self.watch(name)

    def stop(self):
        self._left = 0


async def act(c, dice, machines, number):
    """Migrate a machine, cancel a migration, or let the controllers die."""
    word = dice.choices(["migrate", "cancel", "controllers"], [6, 3, 1])[0]
    if word == "migrate":
        await migrate(c, dice.choice(machines), f"m{number}")
    elif word == "cancel":
        listed = (await c.client.list(Migration)).items
        if pending := [each.metadata.name for each in listed if not each.is_final]:
            await cancel(c, dice.choice(pending))
    else:
        await c.crash_loops()
        c.start_loops()


@pytest.mark.parametrize("seed", seeds(12))
async def test_each_guest_runs_once_whatever_dies_meanwhile(seed):
    dice = random.Random(seed)
    async with cluster(nodes=NODES, only=CONCERNED) as c:
        for name, agent in c.agents.items():
            agent.hypervisor._random.seed(name)  # no two guests have the same memory
        machines = await started(c, MACHINES)
        memories = sorted(running(c))
        uids = {each.metadata.uid for each in machines}
        slow(c, dice.choice([0, 0.5, 3]))
        chaos = Chaos(c, dice)
        for name in c.agents:
            chaos.watch(name)
        for number in range(ACTIONS):
            await asyncio.sleep(dice.choice([0, 0.01, 0.1, 1, 3]) * dice.random())
            with suppress(ApiError):  # refused, or gone meanwhile
                await act(c, dice, machines, number)
        chaos.stop()

        async def is_settled():
            listed = (await c.client.list(Migration)).items
            pods = [pod.status.phase for pod in (await c.client.list(Pod, "default")).items]
            return (
                all(map(c.alive, c.agents))  # also those that were to be started again
                and all(each.is_final for each in listed)
                and pods.count("Running") == MACHINES
                and "Pending" not in pods
                and sorted(running(c)) == memories
            )

        await c.until(is_settled, 900)
        assert not chaos.doubled, (chaos.doubled, chaos.log)
        after = await c.machines("default")
        assert {each.metadata.uid for each in after} == uids
        assert {each.status.phase for each in after} == {"Running"}
        guests = [guest for one in c.agents.values() for guest in one.hypervisor.guests.values()]
        assert len(guests) == MACHINES
        for each in after:
            assert c.guest(each).memory in memories
