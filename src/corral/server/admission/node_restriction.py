"""Restriction of writes by joined nodes (Kubernetes' admission plugin NodeRestriction).

The Node authorizer decides which objects a node may write, this plugin which changes: a node whose
credentials are stolen must not affect other nodes.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Forbidden
from corral.api.kind import at
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.kinds import LEASE, NODE
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.storage.common import SELECTED_NODE, STORAGE_LABEL
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.object import Document, Key
from corral.server.authz.node_authorizer import HOSTNAME, node_of
from corral.server.authz.node_claims import is_volume_at
from corral.server.request.call import Call, Guard, forbidden, storage
from corral.store import Store

_RESERVED_PREFIX: Final = "node-restriction.kubernetes.io/"
"""Labels by which administrators restrict workloads to trusted nodes."""
_KEPT_SPEC: Final = ("podCIDR", "podCIDRs", "taints", "unschedulable", "providerID")


class NodeRestriction:
    """The admission plugin of objects that nodes write."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def guards(self) -> dict[str, Guard]:
        """Return the guards, by the resource name of the stored kind."""
        return {
            storage(NODE): self._node,
            storage(LEASE): self._lease,
            storage(VIRTUAL_MACHINE_INSTANCE): self._vmi,
            storage(PERSISTENT_VOLUME): self._volume,
            storage(CLAIM): self._claim,
        }

    def _node(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or call.user is call.request.user:
            return
        name = document["metadata"]["name"]
        if name != node:
            raise _denied(call, document, f'node "{node}" is not allowed to modify node "{name}"')
        for why in (*self._labels(document, old), *self._spec(document, old)):
            raise _denied(call, document, f'node "{node}" is not allowed to {why}')
        for address in _addresses(document) - _addresses(old or {}):
            if owner := self._owner(address, name):
                raise _denied(
                    call,
                    document,
                    f'node "{node}" is not allowed to have the address of {owner}: {address}',
                )

    def _labels(self, document: Document, old: Document | None) -> Iterator[str]:
        after, before = (at(each or {}, "metadata", "labels") or {} for each in (document, old))
        for label in sorted({*after, *before}):
            if label.startswith(_RESERVED_PREFIX) and after.get(label) != before.get(label):
                yield f"set the label {label}"
        if after.get(HOSTNAME) not in (None, document["metadata"]["name"]):
            yield f"have the label {HOSTNAME} of another node"
        storage_id = after.get(STORAGE_LABEL)
        if storage_id != before.get(STORAGE_LABEL) and (owner := self._storage_owner(document)):
            yield f"have the storage of {owner}: {storage_id}"

    def _storage_owner(self, node: Document) -> str:
        """Return the other Node with the same storage; empty if there is none."""
        storage_id = at(node, "metadata", "labels", STORAGE_LABEL)
        for record in self._store.objects(storage(NODE)) if storage_id else ():
            labels = at(record.document(), "metadata", "labels") or {}
            if (
                record.key.name != node["metadata"]["name"]
                and labels.get(STORAGE_LABEL) == storage_id
            ):
                return f"node {record.key.name}"
        return ""

    def _spec(self, document: Document, old: Document | None) -> Iterator[str]:
        if old is None:
            if at(document, "spec", "podCIDRs") or at(document, "spec", "podCIDR"):
                # a Node that registers again keeps the pod ranges of its running machines
                yield from self._taken_ranges(document)
            return
        after, before = document.get("spec") or {}, old.get("spec") or {}
        for name in _KEPT_SPEC:
            if after.get(name) != before.get(name):
                yield f"change spec.{name}"

    def _taken_ranges(self, document: Document) -> Iterator[str]:
        ranges = set(at(document, "spec", "podCIDRs") or [at(document, "spec", "podCIDR")])
        for record in self._store.objects(storage(NODE)):
            if ranges & set(at(record.document(), "spec", "podCIDRs") or ()):
                yield f"take the pod range of node {record.key.name}"

    def _owner(self, address: str, name: str) -> str:
        """Return the other Node with an address; empty if there is none."""
        for record in self._store.objects(storage(NODE)):
            if record.key.name != name and address in _addresses(record.document()):
                return f"node {record.key.name}"
        return ""

    def _lease(self, call: Call, document: Document, _old: Document | None) -> None:
        node = node_of(call.user)
        metadata = document["metadata"]
        if not node or call.user is call.request.user:
            return
        if metadata.get("namespace") != node_lease.NAMESPACE or metadata["name"] != node:
            raise _denied(call, document, f'node "{node}" is only allowed to write its own lease')

    def _vmi(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or old is None or call.user is call.request.user:
            return
        if document.get("spec") != old.get("spec"):
            raise _denied(
                call, document, f'node "{node}" is not allowed to change the spec of a VMI'
            )
        owners, before = (at(each, "metadata", "ownerReferences") or [] for each in (document, old))
        if owners != before:
            raise _denied(
                call, document, f'node "{node}" is not allowed to change the owners of a VMI'
            )
        after, before = (at(each, "status", "nodeName") for each in (document, old))
        if after != before and not (after == node and _migrates(old, before, node)):
            raise _denied(call, document, f'node "{node}" is not allowed to move a VMI')

    def _volume(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or call.user is call.request.user:
            return
        if not is_volume_at(document, node, self._store):
            raise _denied(
                call, document, f'node "{node}" is only allowed to write volumes that it holds'
            )
        named = at(document, "spec", "claimRef")
        kept = old is not None and named == at(old, "spec", "claimRef")
        # A volume without a claimRef would be bound to any matching claim.
        if not kept and not self._is_selected(named or {}, node):
            why = f'node "{node}" is only allowed to write volumes of claims that select it'
            raise _denied(call, document, why)

    def _is_selected(self, reference: Document, node: str) -> bool:
        """Return whether a claim selects a node: its volume would be bound to no other claim."""
        key = Key(reference.get("namespace") or "", reference.get("name") or "")
        claim = self._store.latest(storage(CLAIM), key)
        if claim is None:
            return False
        return bool(at(claim.document(), "metadata", "annotations", SELECTED_NODE) == node)

    def _claim(self, call: Call, document: Document, old: Document | None) -> None:
        """Reject changes beyond status and progress; a node may unselect itself (reschedule)."""
        node = node_of(call.user)
        if not node or old is None or call.user is call.request.user:
            return
        selected, before = (
            at(each, "metadata", "annotations", SELECTED_NODE) for each in (document, old)
        )
        for part, is_kept in (
            ("spec", document.get("spec") == old.get("spec")),
            ("owners", _owners(document) == _owners(old)),
            ("selected node", not selected or selected == before),
        ):
            if not is_kept:
                raise _denied(
                    call, document, f'node "{node}" is not allowed to change the {part} of a claim'
                )


def _migrates(vmi: Document, source: str, target: str) -> bool:
    """Return whether a VMI migrates from one node to another, as its migration controller says."""
    state = at(vmi, "status", "migrationState") or {}
    is_between = (state.get("sourceNode"), state.get("targetNode")) == (source, target)
    return is_between and not state.get("failed")


def _owners(document: Document) -> object:
    return at(document, "metadata", "ownerReferences") or []


def _denied(call: Call, document: Document, why: str) -> Forbidden:
    return forbidden(call.kind, document["metadata"]["name"], why)


def _addresses(node: Document) -> set[str]:
    found = at(node, "status", "addresses") or ()
    return {each["address"] for each in found if each.get("type") == "InternalIP"}
