"""Claims of warm pools in a whole cluster, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.sim.cluster import Cluster, replica_set
from tests.sim.warm_pools import until_members, until_spares, warm_pool

from corral.aio import Background
from corral.api.errors import NotFound
from corral.api.kinds.corral.claim import VirtualMachineClaim as Claim
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.reconcile.objects import controller_uid


async def with_spares(c: Cluster, spares: int = 2, members: int = 1) -> None:
    """A set, and a warm pool of it, all ready."""
    await c.client.create(ReplicaSet, replica_set("test", members))
    await c.client.create(WarmPool, warm_pool(spares))
    await until_members(c, members)
    await until_spares(c, spares)


async def create(c: Cluster, name: str = "job", pool: str = "spares", **spec) -> Claim:
    document = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}, **spec}}
    return await c.client.create(Claim, document, "default")


async def claim(c: Cluster, name: str = "job") -> Claim | None:
    """Return a claim, or None if it is gone."""
    try:
        return await c.client.get(Claim, name, "default")
    except NotFound:
        return None


async def claims(c: Cluster) -> list[Claim]:
    return (await c.client.list(Claim, "default")).items


def condition(of: Claim, name: str) -> tuple[str, str] | None:
    """Return status and reason of a condition."""
    found = [each for each in of.status.conditions if each.type == name]
    return (found[0].status, found[0].reason) if found else None


async def becomes(
    c: Cluster, name: str, status: str, reason: str, of: str = "job", seconds: float = 120
) -> Claim:
    """Wait until a claim has a condition; return the claim."""

    async def is_so() -> bool:
        found = await claim(c, of)
        return found is not None and condition(found, name) == (status, reason)

    await c.until(is_so, seconds)
    found = await claim(c, of)
    assert found is not None
    return found


async def machine_of(c: Cluster, of: Claim) -> Machine:
    assert of.status.vmi is not None
    return await c.client.get(Machine, of.status.vmi.name, "default")


async def owned_by(c: Cluster, of: Claim) -> list[Machine]:
    return [vmi for vmi in await c.machines() if controller_uid(vmi) == of.metadata.uid]


async def release(c: Cluster, name: str = "job") -> None:
    await c.client.delete(Claim, Key("default", name))


@asynccontextmanager
async def bindings(c: Cluster) -> AsyncIterator[list[str]]:
    """Yield a list that gets the names of claims as they are bound."""
    order: list[str] = []
    version = (await c.client.list(Claim)).resource_version

    async def follow() -> None:
        async for event in c.client.watch(Claim, resource_version=version):
            bound = getattr(event, "object", None)
            if bound is not None and bound.status.vmi and bound.metadata.name not in order:
                order.append(bound.metadata.name)

    async with Background() as tasks:
        tasks.start(follow(), name="bindings")
        yield order
