"""Claims by host: which claims the provisioner of this host serves, and where clones are made.

Each host of a cluster has a provisioner of its own, as external-provisioner's
``--node-deployment``.  A claim with the annotation ``volume.kubernetes.io/selected-node`` is served
by the host of that node.  The first host, which runs the API server, serves claims of Immediate
classes: it selects a node for clones whose source lies on another host.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim

from corral.api.kinds.cdi.population import source_claim
from corral.api.kinds.storage.common import SELECTED_NODE, STORAGE_LABEL
from corral.api.object import Document, Key
from corral.api.volume_binding import storage_of
from corral.reconcile.informer import Informer
from corral.reconcile.objects import annotations_of, key_of, labels_of, version_of


def is_any(_node: str) -> bool:
    """Accept every node: that of the only host."""
    return True


@dataclass(frozen=True, slots=True)
class HostNodes:
    """The nodes of this host.

    is_own: whether a node of that name is one.
    is_first: whether the API server runs on this host.
    selects: whether it selects nodes for claims: not for a storage that many nodes reach.
    """

    is_own: Callable[[str], bool] = is_any
    is_first: bool = True
    selects: bool = True


class ClaimPlacement:
    """Decides from cached objects; no I/O."""

    def __init__(
        self,
        host: HostNodes,
        storage: str,
        *,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        nodes: Informer[Node],
    ) -> None:
        self._host = host
        self._storage = storage
        self._claims = claims
        self._volumes = volumes
        self._nodes = nodes

    def serves(self, claim: PersistentVolumeClaim) -> bool:
        """Report whether this host provisions the volume of a claim."""
        selected = annotations_of(claim).get(SELECTED_NODE)
        return self._host.is_own(selected) if selected else self._host.is_first

    def selection(self, claim: PersistentVolumeClaim) -> Document | None:
        """Return the patch of a claim's selected node; None if it stays.

        Only the first host selects: the node of a clone's source, or another than a deleted one.
        """
        if not self._host.is_first or not self._host.selects:
            return None
        selected = annotations_of(claim).get(SELECTED_NODE)
        if selected:
            is_there = self._host.is_own(selected) or self._nodes.get(Key("", selected)) is not None
            return None if is_there else select(claim, None)
        node = self._node_of_source(claim)
        return select(claim, node) if node else None

    def _node_of_source(self, claim: PersistentVolumeClaim) -> str:
        """Return the node that a claim's source is on; empty if that is this host, or unknown."""
        key = source_claim(claim)
        source = self._claims.get(key) if key is not None else None
        if source is None:
            return ""
        volume = self._volumes.get(Key("", (source.spec and source.spec.volumeName) or ""))
        storage = storage_of(volume) if volume is not None else ""
        if storage == self._storage:
            return ""
        if storage:
            return min((key_of(each).name for each in self._with(storage)), default="")
        selected = annotations_of(source).get(SELECTED_NODE, "")
        return "" if self._host.is_own(selected) else selected

    def _with(self, storage: str) -> list[Node]:
        return [
            each for each in self._nodes.items() if labels_of(each).get(STORAGE_LABEL) == storage
        ]


def select(claim: PersistentVolumeClaim, node: str | None) -> Document:
    """Return the patch that selects a node for a claim; None lets the scheduler choose again."""
    annotations = {SELECTED_NODE: node}
    return {"metadata": {"resourceVersion": version_of(claim), "annotations": annotations}}
