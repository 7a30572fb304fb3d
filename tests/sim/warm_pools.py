"""Warm pools in a whole cluster, for tests of them and of claims."""

from tests.sim.cluster import Cluster

from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL, VirtualMachineWarmPool
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hollow.hypervisor import Behaviour
from corral.reconcile.objects import controller_uid, is_being_deleted

POOL = Key("default", "spares")


def warm_pool(replicas: int = 2, target: str = "test", **spec) -> dict:
    """Return a warm pool of a set, or with ``template`` one of its own."""
    if "template" not in spec:
        spec["targetRef"] = {
            "apiVersion": ReplicaSet.api_version,
            "kind": ReplicaSet.kind,
            "name": target,
        }
    return {"metadata": POOL._asdict(), "spec": {"replicas": replicas, **spec}}


def checkpoint_for(pool: str = "web") -> dict:
    """Return a warm pool that keeps a checkpoint for a pool of VirtualMachines."""
    kind = VirtualMachinePool
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": pool}
    spec = {"targetRef": reference, "startFrom": "Checkpoint"}
    return {"metadata": POOL._asdict(), "spec": spec}


def boot(c: Cluster, **behaviour) -> None:
    """Set the behaviour of guests that start from now on, on all nodes."""
    for hypervisor in c._hypervisors.values():
        hypervisor.behaviour = Behaviour(**behaviour)


async def pool_of(c: Cluster) -> VirtualMachineWarmPool:
    return await c.client.get(VirtualMachineWarmPool, POOL.name, POOL.namespace)


async def spares(c: Cluster) -> list[Machine]:
    """Return the spares that are not being deleted."""
    return [
        vmi
        for vmi in await c.machines("default")
        if WARM_POOL_LABEL in vmi.metadata.labels and not is_being_deleted(vmi)
    ]


async def members(c: Cluster, name: str = "test") -> list[Machine]:
    """Return the VMIs of a set that are not being deleted."""
    uid = (await c.replica_set(name)).metadata.uid
    machines = await c.machines("default")
    return [vmi for vmi in machines if controller_uid(vmi) == uid and not is_being_deleted(vmi)]


def uids(machines: list[Machine]) -> set[str]:
    return {vmi.metadata.uid for vmi in machines}


async def paused(c: Cluster) -> set[str]:
    """Return the uids of the VMIs whose guests stand still."""
    machines = await c.machines("default")
    present = [vmi for vmi in machines if vmi.status.node_name and c.guests(vmi)]
    return uids([vmi for vmi in present if not await c.guest(vmi).runs()])


async def until_spares(c: Cluster, count: int, seconds: float = 120.0) -> None:
    """Wait until a pool says that it has so many spares, all ready, and until there are no more."""

    async def are_ready() -> bool:
        status = (await pool_of(c)).status
        there = len(await spares(c))
        return status.replicas == status.ready_replicas == there == count

    await c.until(are_ready, seconds)


async def until_members(c: Cluster, count: int, seconds: float = 120.0) -> None:
    """Wait until a set says that it has so many members, all ready."""

    async def are_ready() -> bool:
        status = (await c.replica_set("test")).status
        return status.replicas == status.ready_replicas == count == len(await members(c))

    await c.until(are_ready, seconds)
