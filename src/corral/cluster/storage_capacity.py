"""CSIStorageCapacity objects: what the storage of each host has left for new volumes, by class.

external-provisioner writes them for a CSI driver; kube-scheduler reads them, and so do people
(``kubectl get csistoragecapacities -A``).  Nodes report the bytes in an annotation, which is all
that a node may write, and this controller derives the objects.
"""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from lightkube.models.core_v1 import Node
from lightkube.models.storage_v1 import CSIStorageCapacity, StorageClass

from corral.api.errors import AlreadyExists, NotFound
from corral.api.kinds.storage.common import (
    CORRAL_PROVISIONER,
    SHARED_CAPACITY,
    SHARED_LABEL,
    SHARED_PROVISIONER,
    STORAGE_CAPACITY,
    STORAGE_LABEL,
    takes_space,
)
from corral.api.object import Document, Key
from corral.api.quantity import amount
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import annotations_of, key_of, labels_of
from corral.reconcile.workqueue import WorkQueue

NAMESPACE: Final = "kube-system"
LABELS: Final = {"csi.storage.k8s.io/drivername": CORRAL_PROVISIONER.replace("/", "-")}
"""Labels of the objects, as external-provisioner's."""
_KINDS: Final = (
    (CORRAL_PROVISIONER, STORAGE_LABEL, STORAGE_CAPACITY),
    (SHARED_PROVISIONER, SHARED_LABEL, SHARED_CAPACITY),
)
"""Storages of a host's own, and shared ones: provisioner, label and annotation of Nodes."""
_EVERYTHING: Final = Key("", "")


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that keeps the objects."""
    loop = StorageCapacities(context)
    return Controller(
        "storage-capacity", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=1
    )


class StorageCapacities:
    """Caches of Nodes, classes and capacities; all objects are compared together."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._nodes = context.informers.of(Node)
        self._classes = context.informers.of(StorageClass)
        labels = ",".join(f"{name}={value}" for name, value in LABELS.items())
        self._capacities = context.informers.of(CSIStorageCapacity, labels=labels)
        self.sources = (self._nodes, self._classes, self._capacities)
        self._nodes.handle(self._node_changed)
        self._classes.handle(lambda _old, _new: self.queue.add(_EVERYTHING))
        self._capacities.handle(lambda _old, _new: self.queue.add(_EVERYTHING))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        before, after = (
            [_storage(each, kind) for kind in _KINDS] if each is not None else None
            for each in (old, new)
        )
        if before != after:  # not for its heartbeats
            self.queue.add(_EVERYTHING)

    async def reconcile(self, _key: Key) -> None:
        """Create, update and delete objects until they are those of the Nodes and classes."""
        desired = capacities(self._nodes.items(), self._classes.items())
        observed = {key_of(each): each for each in self._capacities.items()}
        for key, document in desired.items():
            present = observed.get(key)
            if present is None:
                await self._create(document)
            elif amount(present.capacity or "0") != amount(document["capacity"]):
                change = {"capacity": document["capacity"]}
                await self._client.patch(CSIStorageCapacity, key, change)
        for key in observed.keys() - desired.keys():
            try:
                await self._client.delete(CSIStorageCapacity, key)
            except NotFound:
                continue

    async def _create(self, document: Document) -> None:
        try:
            await self._client.create(CSIStorageCapacity, document)
        except AlreadyExists:
            return  # the cache has yet to show it


def capacities(nodes: Iterable[Node], classes: Iterable[StorageClass]) -> Mapping[Key, Document]:
    """Return the desired objects: one for each storage and each class that takes space from it.

    Classes that overcommit have none: their volumes fit until the disk is full.
    """
    listed, all_classes = list(nodes), list(classes)
    objects: dict[Key, Document] = {}
    for kind in _KINDS:
        storages = dict(found for each in listed if (found := _storage(each, kind)) is not None)
        names = sorted(key_of(each).name for each in all_classes if takes_space(each, kind[0]))
        for (storage, left), name in product(sorted(storages.items()), names):
            key = Key(NAMESPACE, _name(storage, name))
            objects[key] = {
                "metadata": {"name": key.name, "namespace": NAMESPACE, "labels": dict(LABELS)},
                "nodeTopology": {"matchLabels": {kind[1]: storage}},
                "storageClassName": name,
                "capacity": left,
            }
    return objects


def _storage(node: Node, kind: tuple[str, str, str]) -> tuple[str, str] | None:
    """Return the id of a Node's storage and the bytes that it has left; None without either."""
    _, label, annotation = kind
    storage, left = labels_of(node).get(label), annotations_of(node).get(annotation)
    return (storage, left) if storage and left and left.isdecimal() else None


def _name(storage: str, storage_class: str) -> str:
    digest = hashlib.sha256(f"{storage}\n{storage_class}".encode()).hexdigest()
    return f"csisc-{digest[:10]}"
