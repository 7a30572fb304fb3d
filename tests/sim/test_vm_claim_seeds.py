"""Many claims at once, while the controllers die and requests are lost.

CORRAL_SEEDS=1000 runs a thousand seeds.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.sim.cluster import Cluster, Faults, cluster
from tests.sim.seeds import seeds
from tests.sim.vm_claims import claims, create, release, with_spares
from tests.sim.warm_pools import members, spares, until_spares

from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.kinds.corral.claim import VirtualMachineClaim as Claim
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.reconcile.objects import controller_of

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(120)]
CLAIMERS, SPARES = 64, 5


class Witness:
    """What a watch has seen of claims and machines.

    order: uids of claims in the order in which they were given a machine.
    owners: uids of the claims that each machine has had, by the machine's uid.
    machines: uids of the machines in the status of each claim, by the claim's uid.
    """

    def __init__(self) -> None:
        self.order: list[str] = []
        self.owners: dict[str, set[str]] = defaultdict(set)
        self.machines: dict[str, set[str]] = defaultdict(set)

    def saw_machine(self, vmi: Machine) -> None:
        owner = controller_of(vmi)
        was_claimed = bool(self.owners[vmi.metadata.uid])
        if owner is not None and owner.kind == Claim.kind:
            self.owners[vmi.metadata.uid].add(owner.uid)
            if owner.uid not in self.order:
                self.order.append(owner.uid)
        else:
            assert not was_claimed, "a claimed machine was given to somebody else"

    def saw_claim(self, claim: Claim) -> None:
        if claim.status.vmi is not None:
            self.machines[claim.metadata.uid].add(claim.status.vmi.uid)


@asynccontextmanager
async def witness(c: Cluster) -> AsyncIterator[Witness]:
    seen = Witness()

    async def follow(view, saw) -> None:
        version = (await c.client.list(view)).resource_version
        async for event in c.client.watch(view, resource_version=version):
            if (changed := getattr(event, "object", None)) is not None:
                saw(changed)

    async with Background() as tasks:
        tasks.start(follow(Machine, seen.saw_machine), name="machines")
        tasks.start(follow(Claim, seen.saw_claim), name="claims")
        await asyncio.sleep(0)
        yield seen


async def kill_controllers(c: Cluster, dice: random.Random) -> None:
    """Kill the controllers again and again, at moments of any size."""
    while True:
        await asyncio.sleep(dice.choice([0.001, 0.01, 0.05, 0.3, 2.0]))
        await c.crash_loops()
        c.start_loops()


@pytest.mark.parametrize("seed", seeds(3))
async def test_each_spare_goes_to_one_claim_in_order_of_arrival(seed):
    dice = random.Random(seed)
    async with cluster(faults=Faults(seed)) as c, witness(c) as seen:
        await with_spares(c, SPARES)
        c.faults.fail, c.faults.lose_answer, c.faults.delay = 0.05, 0.05, 0.02
        c.faults.cut, c.faults.double = 0.01, 0.02
        c.faults.until = asyncio.get_running_loop().time() + 20
        names = [f"job-{number}" for number in range(CLAIMERS)]
        dice.shuffle(names)
        async with Background() as tasks:
            killer = tasks.start(kill_controllers(c, dice), name="killer")
            created = await asyncio.gather(*(create(c, name) for name in names))
            released = dice.sample(names, 8)
            for name in released:
                await asyncio.sleep(dice.uniform(0, 1))
                with suppress(ApiError):
                    await release(c, name)
            await asyncio.sleep(5)
            killer.cancel()
        kept = [one for one in created if one.metadata.name not in released]

        async def are_bound():
            present = await claims(c)
            return len(present) == len(kept) and all(one.status.vmi for one in present)

        await c.until(are_bound, 300)
        await until_spares(c, SPARES, 300)
        assert all(len(owners) <= 1 for owners in seen.owners.values())
        assert all(len(machines) == 1 for machines in seen.machines.values())
        arrival = {one.metadata.uid: int(one.metadata.resource_version) for one in created}
        assert seen.order == sorted(seen.order, key=arrival.__getitem__)
        await nothing_leaks(c, kept)


async def nothing_leaks(c: Cluster, kept: list[Claim]) -> None:
    """See that each claim has one machine, and that these go with their claims."""

    async def are_counted(claimed: int) -> bool:
        return len(await c.machines("default")) == claimed + SPARES + len(await members(c))

    async def one_each() -> bool:
        return await are_counted(len(kept))

    async def none() -> bool:
        return await are_counted(0) and len(await c.pods("default")) == 1 + SPARES

    await c.until(one_each, 120)
    for one in kept:
        await release(c, one.metadata.name)
    await c.until(none, 300)
    assert len(await spares(c)) == SPARES
