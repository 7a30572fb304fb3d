"""Restriction of writes by joined nodes (Kubernetes' admission plugin NodeRestriction).

The Node authorizer decides which objects a node may write, this plugin which changes: a node whose
credentials are stolen must not affect other nodes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from corral.api.addresses import Address, Network, parse_address, parse_network
from corral.api.errors import Forbidden
from corral.api.kind import at
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.kinds import LEASE, NODE
from corral.api.kinds.core.node_addresses import wireguard_key
from corral.api.kinds.core.pod import POD
from corral.api.kinds.corral.checkpoint import FAILED, READY
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.storage.common import SELECTED_NODE, STORAGE_LABEL
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.vmi.migration_status import CONTROLLERS_FIELDS
from corral.api.kinds.vmi.user_data import USER_DATA_SECRET
from corral.api.object import Document, Key
from corral.server.authz.node_authorizer import CREATED_BY, HOSTNAME, node_of
from corral.server.authz.node_claims import is_volume_at
from corral.server.request.call import Call, Guard, forbidden, storage
from corral.store import Store

_RESERVED_PREFIX: Final = "node-restriction.kubernetes.io/"
"""Labels by which administrators restrict workloads to trusted nodes."""
COMPLETE_FIELDS: Final = ("identity", "bootSockets", "creationTime", "digest", "sizeBytes")
"""Fields of a checkpoint's status that never change once it is complete."""
_KEPT_SPEC: Final = ("podCIDR", "podCIDRs", "taints", "unschedulable", "providerID")


class NodeRestriction:
    """The admission plugin of objects that nodes write.

    ``routed_pods`` are the pod ranges in which hosts lead packets to the addresses that pods show.
    """

    def __init__(self, store: Store, routed_pods: Sequence[Network] = ()) -> None:
        self._store = store
        self._routed_pods = routed_pods

    def guards(self) -> dict[str, Guard]:
        """Return the guards, by the resource name of the stored kind."""
        return {
            storage(NODE): self._check_node,
            storage(POD): self._check_pod,
            storage(LEASE): self._check_lease,
            storage(VIRTUAL_MACHINE_INSTANCE): self._check_vmi,
            storage(CHECKPOINT): self._check_checkpoint,
            storage(PERSISTENT_VOLUME): self._check_volume,
            storage(CLAIM): self._check_claim,
        }

    def _check_node(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or call.is_by_component:
            return
        name = document["metadata"]["name"]
        if name != node:
            raise _denied(call, document, f'node "{node}" is not allowed to modify node "{name}"')
        for why in (*self._labels(document, old), *self._spec(document, old)):
            raise _denied(call, document, f'node "{node}" is not allowed to {why}')
        if owner := self._key_owner(document, old):
            raise _denied(
                call, document, f'node "{node}" is not allowed to have the WireGuard key of {owner}'
            )
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
        ranges = _ranges(document)
        for record in self._store.objects(storage(NODE)):
            taken = _ranges(record.document())
            if any(_overlap(each, other) for each in ranges for other in taken):
                yield f"take the pod range of node {record.key.name}"

    def _owner(self, address: str, name: str) -> str:
        """Return the other Node with an address; empty if there is none."""
        for record in self._store.objects(storage(NODE)):
            if record.key.name != name and address in _addresses(record.document()):
                return f"node {record.key.name}"
        return ""

    def _key_owner(self, document: Document, old: Document | None) -> str:
        """Return the other Node that has the new WireGuard key of a Node; empty if there is none.

        Other hosts would send the packets for that one here.
        """
        key, before = _wireguard_key(document), _wireguard_key(old or {})
        for record in self._store.objects(storage(NODE)) if key not in (None, before) else ():
            if record.key.name != document["metadata"]["name"] and key == _wireguard_key(
                record.document()
            ):
                return f"node {record.key.name}"
        return ""

    def _check_pod(self, call: Call, document: Document, old: Document | None) -> None:
        """Reject labels, which say what a pod is, and the addresses of other nodes' pods."""
        node = node_of(call.user)
        if not node or old is None or call.is_by_component:
            return
        labels, before = (at(each, "metadata", "labels") or {} for each in (document, old))
        if labels != before:
            raise _denied(
                call, document, f'node "{node}" is not allowed to change the labels of a pod'
            )
        for address in _pod_addresses(document) - _pod_addresses(old):
            if not self._may_show(address, old, node):
                raise _denied(
                    call,
                    document,
                    f'node "{node}" is not allowed to give a pod the address {address}: no range '
                    "of the node has it, nor another pod of the VMI",
                )

    def _may_show(self, address: Address, pod: Document, node: str) -> bool:
        """Return whether a pod may have an address: of its node's ranges, or migrated with it."""
        if not any(address in each for each in self._routed_pods):
            return True
        own = self._store.latest(storage(NODE), Key("", node))
        if own is not None and any(address in each for each in _ranges(own.document())):
            return True
        vmi, namespace = at(pod, "metadata", "labels", CREATED_BY), pod["metadata"]["namespace"]
        return bool(vmi) and any(
            address in _pod_addresses(other)
            for record in self._store.objects(storage(POD), namespace)
            for other in (record.document(),)
            if at(other, "metadata", "labels", CREATED_BY) == vmi
        )

    def _check_lease(self, call: Call, document: Document, _old: Document | None) -> None:
        node = node_of(call.user)
        metadata = document["metadata"]
        if not node or call.is_by_component:
            return
        if metadata.get("namespace") != node_lease.NAMESPACE or metadata["name"] != node:
            raise _denied(call, document, f'node "{node}" is only allowed to write its own lease')

    def _check_vmi(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or old is None or call.is_by_component:
            return
        for why in _vmi_changes(document, old, node):
            raise _denied(call, document, f'node "{node}" is not allowed to {why}')

    def _check_checkpoint(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or old is None or call.is_by_component:
            return
        for why in (*_checkpoint_changes(document, old, node), *self._source(document, old)):
            raise _denied(call, document, f'node "{node}" is not allowed to {why}')

    def _source(self, document: Document, old: Document) -> Iterator[str]:
        """Yield a changed source of a checkpoint that is not the VMI of its spec."""
        after, before = (at(each, "status", "sourceUID") or "" for each in (document, old))
        if after == before:
            return
        key = Key(document["metadata"]["namespace"], document["spec"]["source"]["name"])
        vmi = self._store.latest(storage(VIRTUAL_MACHINE_INSTANCE), key)
        if before or vmi is None or vmi.document()["metadata"]["uid"] != after:
            yield "change the source of a checkpoint"

    def _check_volume(self, call: Call, document: Document, old: Document | None) -> None:
        node = node_of(call.user)
        if not node or call.is_by_component:
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

    def _check_claim(self, call: Call, document: Document, old: Document | None) -> None:
        """Reject changes beyond status and progress; a node may unselect itself (reschedule)."""
        node = node_of(call.user)
        if not node or old is None or call.is_by_component:
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


def _vmi_changes(document: Document, old: Document, node: str) -> Iterator[str]:
    """Yield what a node changes of a VMI that is not the node's."""
    if document.get("spec") != old.get("spec"):
        yield "change the spec of a VMI"
    if _owners(document) != _owners(old):
        yield "change the owners of a VMI"
    # The node may read the Secret that this annotation names.
    after, before = (
        at(each, "metadata", "annotations", USER_DATA_SECRET) for each in (document, old)
    )
    if after != before:
        yield "change the user data of a VMI"
    after, before = (at(each, "status", "nodeName") for each in (document, old))
    if after != before and not (after == node and _migrates(old, before, node)):
        yield "move a VMI"
    after, before = (at(each, "status", "migrationState") or {} for each in (document, old))
    for name in CONTROLLERS_FIELDS:
        if (after.get(name) or "") != (before.get(name) or ""):
            yield f"change status.migrationState.{name} of a VMI"


def _checkpoint_changes(document: Document, old: Document, node: str) -> Iterator[str]:
    """Yield what a node changes of a checkpoint's status that is not the node's."""
    after, before = (at(each, "status", "nodeName") or "" for each in (document, old))
    if after not in (before, node):
        yield "give a checkpoint to another node"
    if _is_true(old, FAILED) and not _is_true(document, FAILED):
        yield "repair a checkpoint that has failed"
    for name in COMPLETE_FIELDS if _is_true(old, READY) else ():
        if at(document, "status", name) != at(old, "status", name):
            yield f"change status.{name} of a complete checkpoint"


def _is_true(document: Document, condition: str) -> bool:
    conditions = at(document, "status", "conditions") or ()
    return any(
        each.get("type") == condition and each.get("status") == "True" for each in conditions
    )


def _migrates(vmi: Document, source: str, target: str) -> bool:
    """Return whether a VMI migrates from one node to another, as its migration controller says."""
    state = at(vmi, "status", "migrationState") or {}
    is_between = (state.get("sourceNode"), state.get("targetNode")) == (source, target)
    return is_between and not state.get("failed")


def _owners(document: Document) -> object:
    return at(document, "metadata", "ownerReferences") or []


def _ranges(node: Document) -> list[Network]:
    """Return the pod ranges of a Node that can be read."""
    texts = at(node, "spec", "podCIDRs") or [at(node, "spec", "podCIDR") or ""]
    return [each for each in map(parse_network, texts) if each is not None]


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _pod_addresses(pod: Document) -> set[Address]:
    """Return the addresses in a pod's status that can be read."""
    texts = [each.get("ip") for each in at(pod, "status", "podIPs") or ()]
    parsed = map(parse_address, filter(None, [*texts, at(pod, "status", "podIP")]))
    return {each for each in parsed if each is not None}


def _denied(call: Call, document: Document, why: str) -> Forbidden:
    return forbidden(call.kind, document["metadata"]["name"], why)


def _wireguard_key(node: Document) -> bytes | None:
    return wireguard_key(at(node, "metadata", "annotations"))


def _addresses(node: Document) -> set[str]:
    found = at(node, "status", "addresses") or ()
    return {each["address"] for each in found if each.get("type") == "InternalIP"}
