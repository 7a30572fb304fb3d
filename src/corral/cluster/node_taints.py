"""Taints nodes under pressure, so that no pod is placed there (Kubernetes' node lifecycle)."""

from typing import Any

import msgspec
from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_pressure import TAINTS, pressure_taints
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.context import World
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of, version_of
from corral.reconcile.workqueue import WorkQueue


def controller(world: World) -> Controller[Key]:
    """The controller of these taints."""
    queue = WorkQueue[Key]()
    nodes = world.informers.of(Node)

    def changed(_old: Node | None, new: Node | None) -> None:
        if new is not None and tainted(new, "") is not None:
            queue.add(key_of(new))

    async def reconcile(key: Key) -> None:
        node = nodes.get(key)
        if node is None or (taints := tainted(node, rfc3339(world.clock()))) is None:
            return
        guard = {"resourceVersion": version_of(node)}
        await world.client.patch(Node, key, {"metadata": guard, "spec": {"taints": taints}})

    nodes.handle(changed)
    return Controller("node-taints", reconcile, queue=queue, sources=(nodes,))


def tainted(node: Node, now: str) -> list[Document] | None:
    """The taints that a node is to have; None where it has them.  Others' stay as they are."""
    present: list[Any] = msgspec.to_builtins(list((node.spec and node.spec.taints) or ()))
    wanted = {each.key: each for each in pressure_taints(node)}
    ours = {each["key"] for each in present if each["key"] in TAINTS.values()}
    if ours == set(wanted):
        return None
    kept = [each for each in present if each["key"] not in ours - set(wanted)]
    added = [wanted[key] for key in wanted if key not in ours]
    return kept + [{"key": each.key, "effect": each.effect, "timeAdded": now} for each in added]
