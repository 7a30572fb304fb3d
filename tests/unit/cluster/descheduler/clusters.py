"""Small clusters for tests of the descheduler: nodes, pods of VMIs, and what plugins evict."""

from datetime import UTC, datetime

import msgspec
from lightkube.models.core_v1 import Node, Pod

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.cluster.descheduler.arguments import DefaultEvictorArgs
from corral.cluster.descheduler.default_evictor import DefaultEvictor, EvictorInputs
from corral.cluster.descheduler.handle import Handle
from corral.cluster.descheduler.snapshot import Lookups, Snapshot
from corral.cluster.descheduler.strategies import STRATEGIES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ("n1", "n2", "n3")


def node(name, *, cpu="4", memory="3Gi", pods="10", labels=None, ready="True", **spec):
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(document, Node)


def vmi(name, *, strategy="", migratable=True, evacuates="", node="", annotations=None, **spec):
    conditions = [{"type": "LiveMigratable", "status": str(migratable)}]
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": annotations or {},
        },
        "spec": {"domain": {"devices": {}}, **spec},
        "status": {
            "conditions": conditions,
            "evacuationNodeName": evacuates,
            "nodeName": node,
        },
    }
    if strategy:
        document["spec"]["evictionStrategy"] = strategy
    return msgspec.convert(document, VirtualMachineInstance)


def replica_set(name="set", **metadata):
    template = {"metadata": {}, "spec": {"domain": {"devices": {}}}}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"selector": {}, "template": template},
    }
    return msgspec.convert(document, VirtualMachineInstanceReplicaSet)


SET = replica_set()


class World:
    """Nodes, and pods with their VMIs and owners."""

    def __init__(self, *nodes):
        self.nodes = list(nodes)
        self.pods = []
        self.vmis = {}
        self.owners = {}
        self.volumes = {}

    def add(self, name, where, *, owner=SET, cpu="400m", memory="64Mi", of=None, **more):
        """Add a VMI and its pod; ``of`` is the VMI, ``more`` fields of the pod's document."""
        machine = of or vmi(name)
        metadata, spec, status = (more.get(part, {}) for part in ("metadata", "spec", "status"))
        resources = {"requests": {"cpu": cpu, "memory": memory}}
        if machine.spec.affinity is not None:
            spec = {"affinity": msgspec.to_builtins(machine.spec.affinity), **spec}
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": "2025-12-01T00:00:00Z",
                "ownerReferences": [
                    {
                        "apiVersion": "kubevirt.io/v1",
                        "kind": "VirtualMachineInstance",
                        "name": machine.metadata.name,
                        "uid": machine.metadata.uid,
                        "controller": True,
                    }
                ],
                **metadata,
            },
            "spec": {
                "containers": [{"name": "compute", "image": "a", "resources": resources}],
                **({"nodeName": where} if where else {}),
                **spec,
            },
            "status": {"phase": "Running", "qosClass": "Burstable", **status},
        }
        pod = msgspec.convert(document, Pod)
        self.pods.append(pod)
        self.vmis[name] = machine
        self.owners[name] = owner
        return pod

    def fill(self, where, count, prefix=None, **more):
        for number in range(count):
            self.add(f"{prefix or where}-{number}", where, **more)

    def snapshot(self):
        lookups = Lookups(
            vmi=lambda pod: self.vmis.get(pod.metadata.name),
            owner=lambda pod: self.owners.get(pod.metadata.name),
            reaches_volumes=lambda pod, node: (
                self.volumes.get(pod.metadata.name, node.metadata.name) == node.metadata.name
            ),
        )
        snapshot = Snapshot(self.nodes, lookups)
        for _ in snapshot.observe(self.pods):
            pass
        return snapshot

    def handle(self, evictor=None, **inputs):
        snapshot = self.snapshot()
        nodes = tuple(sorted(each.metadata.name for each in self.nodes))
        args = msgspec.convert(evictor or {}, DefaultEvictorArgs)
        beside = EvictorInputs(now=NOW, nodes=nodes, **inputs)
        return Handle(snapshot, DefaultEvictor(args, snapshot, beside), nodes, NOW)

    def evicted(self, plugin, args=None, *, evictor=None, refuse=(), **inputs):
        """Return the names of the pods that a plugin evicts, in order, and the cluster after."""
        strategy = STRATEGIES[plugin]
        arguments = msgspec.convert(args or {}, strategy.arguments)
        assert list(arguments.faults()) == []
        handle = self.handle(evictor, **inputs)
        names = []
        for one in strategy.evictions(arguments, handle):
            if one is not None and one.key.name not in refuse:
                names.append(one.key.name)
                handle.snapshot.evict(one)
        return names, handle.snapshot


def sizes(snapshot):
    """Return how many pods are on each node."""
    return {name: len(snapshot.pods_on(name)) for name in snapshot.names()}
