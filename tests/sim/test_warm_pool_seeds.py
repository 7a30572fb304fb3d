"""Warm pools while sets scale, machines fail, templates change, and the manager dies.

A set and some others ask for the same spares.  CORRAL_SEEDS=1000 runs a thousand of them.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.seeds import seeds
from tests.sim.warm_pools import (
    POOL,
    boot,
    members,
    paused,
    pool_of,
    spares,
    uids,
    until_members,
    until_spares,
    warm_pool,
)

from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.kinds.corral.warm_pool import FROM_WARM_POOL, VirtualMachineWarmPool as WarmPool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.cluster import disruption, pod_gc, scheduler
from corral.daemon.component_users import CONTROLLER
from corral.node.hypervisor import Change
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid, is_being_deleted
from corral.reconcile.replicas import is_active
from corral.reconcile.spares import Spares

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]
CONCERNED = (scheduler.controller, pod_gc.controller, disruption.controller)
"""The stand-ins that have a part in it: with all of them a seed takes half as long again."""
RIVALS = ("rival0", "rival1", "rival2")
ACTIONS = 14
SET = Key("default", "test")


class Claimers:
    """Others that ask for spares: each is a set that does nothing by itself."""

    def __init__(self, c):
        self._c = c
        self._context = ControllerContext(c._client(CONTROLLER))
        self.received = Counter()
        """How often each VMI was handed out to one of them, by uid."""

    async def start(self, tasks):
        self._owners = [
            await self._c.client.create(ReplicaSet, replica_set(name, 0, paused=True))
            for name in RIVALS
        ]
        self._spares = Spares(self._context)
        tasks.start(self._context.run(), name="claimers")
        for informer in (self._spares.pools, self._spares.sets, self._spares.vmis):
            await informer.synced()

    async def claim(self, count):
        """Have so many of them ask for one spare each, at once."""
        await asyncio.gather(*(self._claim(each) for each in self._owners[:count]))

    async def _claim(self, owner):
        with suppress(ApiError):  # a fault
            for pool in self._spares.pools.items():
                labels = {"app": owner.metadata.name}
                for vmi in (await self._spares.hand_out(pool, owner, labels)).given:
                    self.received[vmi.metadata.uid] += 1


def end(c, machine, change):
    """End the guest of a machine, if it has one already."""
    if machine.status.node_name and c.guests(machine):
        c.end(machine, change)


async def act(c, dice, claimers):
    """Do one thing that a user, a guest or the host may do."""
    word = dice.choices(
        ["scale", "pool", "delete", "end", "claim", "template", "manager"],
        [4, 2, 4, 3, 5, 1, 2],
    )[0]
    machines = await c.machines("default")
    if word == "scale":
        await c.scale("test", dice.randint(0, 6))
    elif word == "pool":
        await c.client.patch(WarmPool, POOL, {"spec": {"replicas": dice.randint(0, 5)}})
    elif word == "delete" and machines:
        await c.client.delete(Machine, dice.choice(machines).key)
    elif word == "end" and machines:
        end(c, dice.choice(machines), dice.choice([Change.GONE, Change.POWERED_OFF]))
    elif word == "claim":
        await claimers.claim(dice.randint(1, len(RIVALS)))
    elif word == "template":
        seconds = {"spec": {"terminationGracePeriodSeconds": dice.randint(0, 3)}}
        await c.client.patch(ReplicaSet, SET, {"spec": {"template": seconds}})
    elif word == "manager":
        await c.crash_loops()
        await asyncio.sleep(dice.choice([0, 0.5, 3]))
        c.start_loops()


@pytest.mark.parametrize("seed", seeds(8))
async def test_each_spare_has_one_owner_and_none_is_lost(seed):
    dice = random.Random(seed)
    faults = Faults(seed, until=60)
    if seed % 2:
        faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.05, until=60)
    claimers, owners = None, {}
    async with cluster(nodes=2, faults=faults, only=CONCERNED) as c, Background() as tasks:
        claimers = Claimers(c)
        await claimers.start(tasks)
        boot(c, boot_seconds=2, start_failures=0.1, crashes=0.1, seed=seed)
        await c.client.create(ReplicaSet, replica_set("test", 3))
        state = "Paused" if seed % 4 > 1 else "Running"
        await c.client.create(WarmPool, warm_pool(3, state=state))
        for _ in range(ACTIONS):
            await asyncio.sleep(dice.choice([0, 0.01, 1, 5]) * dice.random())
            await act(c, dice, claimers)
            for vmi in await c.machines("default"):
                if FROM_WARM_POOL in vmi.metadata.annotations:
                    owners.setdefault(vmi.metadata.uid, set()).add(controller_uid(vmi))
        boot(c)
        await asyncio.sleep(max(0.0, faults.until - asyncio.get_running_loop().time()))
        replicas = (await c.replica_set("test")).spec.replicas
        await until_members(c, replicas, 600)
        await until_spares(c, (await pool_of(c)).spec.replicas, 600)
        assert await paused(c) == (uids(await spares(c)) if state == "Paused" else set())
        assert set(claimers.received.values()) <= {1}
        assert all(len(each) == 1 for each in owners.values())

        async def is_settled():
            there = await c.machines("default")
            claimed = [vmi for name in RIVALS for vmi in await members(c, name)]
            known = [*await members(c), *await spares(c), *claimed]
            guests = [one for each in c._hypervisors.values() for one in each.guests.values()]
            return (
                not any(is_being_deleted(vmi) for vmi in there)
                and len(there) == len(known)
                and len(guests) == sum(map(is_active, there))
            )

        await c.until(is_settled, 300)
        came = [vmi for vmi in await c.machines() if FROM_WARM_POOL in vmi.metadata.annotations]
        assert (await pool_of(c)).status.claimed_replicas == len(came)
