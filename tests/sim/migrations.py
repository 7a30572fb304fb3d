"""Migrations for tests: sets whose machines can move, and what becomes of them."""

from dataclasses import replace

from tests.sim.cluster import Cluster, replica_set

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.api.object import Key


def movable_set(name: str = "test", replicas: int = 1, strategy: str = "LiveMigrate") -> dict:
    """A replica set whose machines live-migrate when they are evicted."""
    document = replica_set(name, replicas)
    spec = document["spec"]["template"]["spec"]
    spec["evictionStrategy"] = strategy
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    return document


async def started(c: Cluster, replicas: int = 1) -> list[Vmi]:
    """Create a set of movable machines; return them when all are ready."""
    await c.client.create(ReplicaSet, movable_set(replicas=replicas))
    await c.until_ready("test", replicas)
    return await c.machines("default")


async def migrate(c: Cluster, vmi: Vmi, name: str = "move", **spec) -> Migration:
    """Create a migration of a VMI."""
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"vmiName": vmi.metadata.name, **spec},
    }
    return await c.client.create(Migration, document)


async def migration(c: Cluster, name: str = "move") -> Migration:
    return await c.client.get(Migration, name, "default")


async def in_phase(c: Cluster, *phases: str, name: str = "move") -> Migration:
    """Wait until a migration is in one of some phases; return it."""

    async def is_there() -> bool:
        return (await migration(c, name)).status.phase in phases

    await c.until(is_there, 1200)
    return await migration(c, name)


async def vmi(c: Cluster, like: Vmi) -> Vmi:
    """Return a VMI as it is now."""
    return await c.client.get(Vmi, like.metadata.name, "default")


def slow(c: Cluster, seconds: float) -> None:
    """Let machines take so long to migrate."""
    for agent in c.agents.values():
        hypervisor = agent.hypervisor
        hypervisor.behaviour = replace(hypervisor.behaviour, migration_seconds=seconds)


def running(c: Cluster) -> list:
    """Return the memories of all guests that execute something, on any node."""
    return [
        guest.memory
        for agent in c.agents.values()
        for guest in agent.hypervisor.guests.values()
        if not (guest.halted or guest.received)
    ]


async def cancel(c: Cluster, name: str = "move") -> None:
    await c.client.delete(Migration, Key("default", name))
