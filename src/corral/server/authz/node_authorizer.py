"""Authorization of joined nodes (Kubernetes' Node authorizer, plugin/pkg/auth/authorizer/node).

A node reads a Secret or ConfigMap only if a VMI or a claim placed on it names that, and writes only
its own Node, Lease, pods, VMIs, claims and volumes.  ``admission.node_restriction`` checks the
content of these writes.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP, NODE_USER_PREFIX
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.kinds import CONFIG_MAP, SECRET, SERVICE_ACCOUNT
from corral.api.kinds.core.pod import POD
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.migration import TARGET_NODE
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.referenced_objects import Reference, named_objects
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.request import User
from corral.server.authz import node_claims
from corral.server.authz.attributes import Attributes
from corral.server.authz.node_claims import is_claim_at, is_shared_claim_at, is_volume_at
from corral.server.authz.stored_changes import StoredChanges
from corral.server.request.call import storage
from corral.store import Record, Store

CREATED_BY: Final = "kubevirt.io/created-by"
HOSTNAME: Final = "kubernetes.io/hostname"
_READ: Final = frozenset({"get", "list", "watch"})
_CHANGE: Final = frozenset({"update", "patch"})
_READABLE: Final = frozenset(
    {
        *(("", each) for each in ("nodes", "pods", "services", "endpoints", "namespaces")),
        *(("", each) for each in ("persistentvolumes", "persistentvolumeclaims")),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.k8s.io", "networkpolicies"),
        ("storage.k8s.io", "storageclasses"),
        ("corral.dev", "virtualmachinecheckpoints"),
    }
)
"""Resources that every node may read, for the network and the volumes of machines."""
_KINDS: Final = {"secrets": SECRET, "configmaps": CONFIG_MAP, "serviceaccounts": SERVICE_ACCOUNT}


def node_of(user: User) -> str:
    """Return the node name of a user ``system:node:NAME``; empty for any other user."""
    if NODE_GROUP not in user.groups:
        return ""
    name = user.name.removeprefix(NODE_USER_PREFIX)
    return name if name != user.name else ""


_NO_KEY: Final = Key("", "")


@dataclass(slots=True)
class _PlacedVmi:
    """A VMI, the objects that it names, and its pods with the node of each."""

    key: Key = _NO_KEY
    is_stored: bool = False
    """True if the VMI itself is stored: its pods may be seen before it, and after its deletion."""
    references: frozenset[Reference] = frozenset()
    pods: dict[Key, str] = field(default_factory=dict)


class NodeGraph:
    """The VMIs of each node and the objects that they name, synced with the store at lookups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handlers: Mapping[str, Callable[[Record, bool], None]] = {
            storage(POD): self._pod,
            storage(VIRTUAL_MACHINE_INSTANCE): self._vmi,
        }
        self._changes = StoredChanges(store, self._handlers)
        self._placed: dict[str, _PlacedVmi] = defaultdict(_PlacedVmi)
        """By the VMI's uid."""
        self._of_node: dict[str, set[str]] = defaultdict(set)
        """The uids of VMIs by node."""

    def places(self, node: str, vmi: Key) -> bool:
        """Return whether a VMI has a pod on a node."""
        return any(each.key == vmi for each in self._on(node))

    def names(self, node: str, namespace: str, reference: Reference) -> bool:
        """Return whether a VMI on a node names an object of its namespace."""
        return any(
            each.key.namespace == namespace and reference in each.references
            for each in self._on(node)
        )

    def _on(self, node: str) -> list[_PlacedVmi]:
        self._sync()
        return [self._placed[uid] for uid in self._of_node.get(node, ())]

    def _sync(self) -> None:
        for kind, changes in self._changes:
            handle = self._handlers[kind]
            if changes is None:
                self._clear(kind)
                for record in self._store.objects(kind):
                    handle(record, True)  # noqa: FBT003
                continue
            for change in changes:
                handle(change.record, not change.deleted)

    def _clear(self, kind: str) -> None:
        for each in self._placed.values():
            if kind == storage(POD):
                each.pods.clear()
                self._of_node.clear()
            else:
                each.references = frozenset()

    def _pod(self, record: Record, present: bool) -> None:  # noqa: FBT001
        pod = record.document()
        uid, node = at(pod, "metadata", "labels", CREATED_BY), at(pod, "spec", "nodeName")
        if not uid:
            return
        pods = self._placed[uid].pods
        if present and node and at(pod, "status", "phase") not in ("Succeeded", "Failed"):
            pods[record.key] = node
            self._of_node[node].add(uid)
        elif node_before := pods.pop(record.key, None):
            if node_before not in pods.values():
                self._of_node[node_before].discard(uid)
            if not pods and not self._placed[uid].is_stored:
                del self._placed[uid]

    def _vmi(self, record: Record, present: bool) -> None:  # noqa: FBT001
        document = record.document()
        uid = document["metadata"]["uid"]
        if not present:
            placed = self._placed[uid]
            placed.is_stored, placed.references = False, frozenset()
            if not placed.pods:
                del self._placed[uid]
            return
        placed = self._placed[uid]
        placed.key, placed.is_stored = record.key, True
        vmi = decode_as(record.data, VirtualMachineInstance)
        placed.references = frozenset(named_objects(vmi))


class NodeAuthorizer:
    """Authorizes the users of joined nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._graph = NodeGraph(store)

    def allows(self, attributes: Attributes) -> bool:
        """Return whether a node has a right; False for users that are no nodes."""
        node = node_of(attributes.user)
        if not node or attributes.path:
            return False
        kind = (attributes.group, attributes.resource)
        if attributes.verb in _READ and kind in _READABLE and not attributes.subresource:
            return True
        rule = _RULES.get(kind)
        return rule is not None and rule(self, node, attributes)

    def _node(self, node: str, attributes: Attributes) -> bool:
        if attributes.subresource not in ("", "status"):
            return False
        return attributes.verb == "create" or (
            attributes.name == node and attributes.verb in _CHANGE | {"get", "delete"}
        )

    def _lease(self, node: str, attributes: Attributes) -> bool:
        if attributes.namespace != node_lease.NAMESPACE or attributes.subresource:
            return False
        return attributes.verb == "create" or (
            attributes.name == node and attributes.verb in _CHANGE | {"get"}
        )

    def _event(self, _node: str, attributes: Attributes) -> bool:
        return attributes.verb in _CHANGE | {"create"}

    def _pod(self, node: str, attributes: Attributes) -> bool:
        own = self._document(storage(POD), attributes)
        if own is None or at(own, "spec", "nodeName") != node:
            return False
        if attributes.subresource == "status":
            return attributes.verb in _CHANGE
        return attributes.verb == "delete" and not attributes.subresource

    def _vmi(self, node: str, attributes: Attributes) -> bool:
        if attributes.subresource:
            return False
        if attributes.verb in ("list", "watch"):
            return attributes.labels in {f"{NODE_LABEL}={node}", f"{TARGET_NODE}={node}"}
        key = Key(attributes.namespace, attributes.name)
        return attributes.verb in _CHANGE | {"get"} and self._graph.places(node, key)

    def _checkpoint(self, node: str, attributes: Attributes) -> bool:
        """Check that a checkpoint is of this node, or that its source is, and nobody has begun."""
        if attributes.subresource != "status" or attributes.verb not in _CHANGE:
            return False
        checkpoint = self._document(storage(CHECKPOINT), attributes)
        source = at(checkpoint or {}, "spec", "source", "name") or ""
        recorded = at(checkpoint or {}, "status", "nodeName")
        if recorded:
            return bool(recorded == node)
        return self._graph.places(node, Key(attributes.namespace, source))

    def _named(self, node: str, attributes: Attributes) -> bool:
        """Check that an object is named; a list or watch must select it by ``metadata.name``."""
        if attributes.verb not in _READ or attributes.subresource or not attributes.name:
            return False
        reference = Reference(_KINDS[attributes.resource].name, attributes.name)
        return self._graph.names(node, attributes.namespace, reference) or node_claims.names(
            self._store, node, attributes.namespace, reference
        )

    def _account(self, node: str, attributes: Attributes) -> bool:
        if attributes.subresource == "token" and attributes.verb == "create":
            reference = Reference(SERVICE_ACCOUNT.name, attributes.name)
            return self._graph.names(node, attributes.namespace, reference)
        return self._named(node, attributes)

    def _claim(self, node: str, attributes: Attributes) -> bool:
        if attributes.verb not in _CHANGE or attributes.subresource not in ("", "status"):
            return False
        claim = self._document(storage(CLAIM), attributes)
        if claim is None:
            return False
        return is_claim_at(claim, node, self._store) or is_shared_claim_at(claim, node, self._store)

    def _volume(self, node: str, attributes: Attributes) -> bool:
        if attributes.subresource not in ("", "status"):
            return False
        if attributes.verb == "create":
            return True
        volume = self._document(storage(PERSISTENT_VOLUME), attributes)
        return (
            volume is not None
            and attributes.verb in _CHANGE | {"delete"}
            and self._is_at(volume, node)
        )

    def _is_at(self, volume: Document, node: str) -> bool:
        return is_volume_at(volume, node, self._store)

    def _document(self, kind: str, attributes: Attributes) -> Document | None:
        record = self._store.latest(kind, Key(attributes.namespace, attributes.name))
        return record.document() if record is not None else None


_Rule = Callable[[NodeAuthorizer, str, Attributes], bool]
_RULES: Final[Mapping[tuple[str, str], _Rule]] = {
    ("", "nodes"): NodeAuthorizer._node,  # noqa: SLF001
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,  # noqa: SLF001
    ("", "events"): NodeAuthorizer._event,  # noqa: SLF001
    ("events.k8s.io", "events"): NodeAuthorizer._event,  # noqa: SLF001
    ("", "pods"): NodeAuthorizer._pod,  # noqa: SLF001
    ("kubevirt.io", "virtualmachineinstances"): NodeAuthorizer._vmi,  # noqa: SLF001
    (CHECKPOINT.group, CHECKPOINT.plural): NodeAuthorizer._checkpoint,  # noqa: SLF001
    ("", "secrets"): NodeAuthorizer._named,  # noqa: SLF001
    ("", "configmaps"): NodeAuthorizer._named,  # noqa: SLF001
    ("", "serviceaccounts"): NodeAuthorizer._account,  # noqa: SLF001
    ("", "persistentvolumeclaims"): NodeAuthorizer._claim,  # noqa: SLF001
    ("", "persistentvolumes"): NodeAuthorizer._volume,  # noqa: SLF001
}
