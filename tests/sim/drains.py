"""Drains of nodes for tests, as kubectl does them, and a witness of how many machines serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from lightkube.models.core_v1 import Node, Pod
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import Cluster

from corral.api.errors import NotFound, TooManyRequests
from corral.api.object import Key
from corral.client.decoding import Bookmark
from corral.cluster.disruption.allowed_disruptions import is_healthy
from corral.reconcile.objects import key_of, labels_of, uid_of

RETRY_SECONDS = 5
"""Delay of kubectl after an eviction that is refused for now."""
NAME = "test"


def budget(**spec) -> dict:
    """A budget of the pods that are labelled ``app=test``."""
    return {
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": NAME}}, **spec},
    }


async def evict(c: Cluster, pod: Key, **options) -> None:
    """Ask for the eviction of a pod; ``options`` are those of its deletion."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        **({"deleteOptions": options} if options else {}),
    }
    await c.client.post(Pod, pod, "eviction", eviction)


async def cordon(c: Cluster, node: str, *, closed: bool = True) -> None:
    await c.client.patch(Node, Key("", node), {"spec": {"unschedulable": closed or None}})


async def drain(c: Cluster, node: str) -> int:
    """Close a node and evict what is on it; answers how often an eviction was refused."""
    await cordon(c, node)
    pods = await pods_on(c, node)
    return sum(await asyncio.gather(*(_empty(c, pod) for pod in pods)))


async def _empty(c: Cluster, pod: Pod) -> int:
    refused = 0
    while True:
        try:
            await evict(c, key_of(pod))
        except TooManyRequests:
            refused += 1
            await asyncio.sleep(RETRY_SECONDS)
        except NotFound:
            return refused
        else:
            break
    while uid_of(pod) in {uid_of(each) for each in await c.pods("default")}:
        await asyncio.sleep(1)
    return refused


async def pods_on(c: Cluster, node: str) -> list[Pod]:
    return [pod for pod in await c.pods("default") if pod.spec.nodeName == node]


async def allows(c: Cluster, count: int, seconds: float = 120.0) -> Budget:
    """Wait until the budget allows so many disruptions; answers the budget."""

    async def does() -> bool:
        status = (await c.client.get(Budget, NAME, "default")).status
        return status is not None and status.disruptionsAllowed == count

    await c.until(does, seconds)
    return await c.client.get(Budget, NAME, "default")


@dataclass
class Witness:
    """The fewest pods that were ready at once."""

    fewest: int


@asynccontextmanager
async def witness(c: Cluster) -> AsyncIterator[Witness]:
    """Count the ready pods labelled ``app=test`` at each change, for the length of a block."""
    listed = await c.client.list(Pod, "default")
    ready = {uid_of(pod): pod for pod in listed.items if _counts(pod)}
    seen = Witness(len(ready))

    async def look() -> None:
        version = listed.resource_version
        async for event in c.client.watch(Pod, "default", resource_version=version):
            if isinstance(event, Bookmark):
                continue
            pod = event.object
            if event.type != "DELETED" and _counts(pod):
                ready[uid_of(pod)] = pod
            else:
                ready.pop(uid_of(pod), None)
            seen.fewest = min(seen.fewest, len(ready))

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


def _counts(pod: Pod) -> bool:
    return labels_of(pod).get("app") == NAME and is_healthy(pod)
