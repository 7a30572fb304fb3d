"""What a node of another host may do: what is its own, and what its machines need.

It plays Kubernetes' Node authorizer (plugin/pkg/auth/authorizer/node): a node reads Secrets and
ConfigMaps only when a VMI or a claim that is placed on it names them, and writes only its own Node,
Lease, pods, VMIs, claims and volumes.  ``admission.node_restriction`` looks at what it writes.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.api.encoding import decode_as
from corral.api.errors import Gone
from corral.api.kind import at
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP, NODE_USER_PREFIX
from corral.api.kinds.core.kinds import CONFIG_MAP, SECRET, SERVICE_ACCOUNT
from corral.api.kinds.core.pod import POD
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.vmi.referenced_objects import Reference, references
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.request import User
from corral.server.authz import node_claims
from corral.server.authz.attributes import Attributes
from corral.server.authz.node_claims import is_claim_at, is_volume_at
from corral.server.request.call import storage
from corral.store import Record, Store

LEASE_NAMESPACE: Final = "kube-node-lease"
NODE_LABEL: Final = "kubevirt.io/nodeName"
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
    }
)
"""What every node reads: what the network and the volumes of machines are made from."""
_KINDS: Final = {"secrets": SECRET, "configmaps": CONFIG_MAP, "serviceaccounts": SERVICE_ACCOUNT}


def node_of(user: User) -> str:
    """Return the name of the node that a user is; empty for any other user."""
    if NODE_GROUP not in user.groups:
        return ""
    name = user.name.removeprefix(NODE_USER_PREFIX)
    return name if name != user.name else ""


_NO_KEY: Final = Key("", "")


@dataclass(slots=True)
class _Placed:
    """A VMI and what it names; ``pods`` are its pods with the node of each."""

    key: Key = _NO_KEY
    is_known: bool = False
    """Whether the VMI is stored, and not only its pods."""
    references: frozenset[Reference] = frozenset()
    pods: dict[Key, str] = field(default_factory=dict)


class NodeGraph:
    """Which VMIs are placed on which node, and what they name.  It follows the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._take: Mapping[str, Callable[[Record, bool], None]] = {
            storage(POD): self._pod,
            storage(VIRTUAL_MACHINE_INSTANCE): self._vmi,
        }
        self._seen = dict.fromkeys(self._take, -1)
        self._placed: dict[str, _Placed] = defaultdict(_Placed)
        """By the VMI's uid."""
        self._of_node: dict[str, set[str]] = defaultdict(set)
        """The uids of VMIs by node."""

    def places(self, node: str, vmi: Key) -> bool:
        """Whether a VMI has a pod on a node."""
        return any(each.key == vmi for each in self._on(node))

    def names(self, node: str, namespace: str, reference: Reference) -> bool:
        """Whether a VMI on a node names an object of its namespace."""
        return any(
            each.key.namespace == namespace and reference in each.references
            for each in self._on(node)
        )

    def _on(self, node: str) -> list[_Placed]:
        self._follow()
        return [self._placed[uid] for uid in self._of_node.get(node, ())]

    def _follow(self) -> None:
        for kind, take in self._take.items():
            seen, newest = self._seen[kind], self._store.last_changed(kind)
            if newest == seen:
                continue
            try:
                changes = self._store.changes(kind, seen) if seen >= 0 else None
            except Gone:
                changes = None
            self._seen[kind] = newest
            if changes is None:
                self._forget(kind)
                for record in self._store.objects(kind):
                    take(record, True)  # noqa: FBT003
                continue
            for change in changes:
                take(change.record, not change.deleted)

    def _forget(self, kind: str) -> None:
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
        elif left := pods.pop(record.key, None):
            if left not in pods.values():
                self._of_node[left].discard(uid)
            if not pods and not self._placed[uid].is_known:
                del self._placed[uid]

    def _vmi(self, record: Record, present: bool) -> None:  # noqa: FBT001
        document = record.document()
        uid = document["metadata"]["uid"]
        if not present:
            placed = self._placed[uid]
            placed.is_known, placed.references = False, frozenset()
            if not placed.pods:
                del self._placed[uid]
            return
        placed = self._placed[uid]
        placed.key, placed.is_known = record.key, True
        vmi = decode_as(record.data, VirtualMachineInstance)
        placed.references = frozenset(references(vmi.spec))


class NodeAuthorizer:
    """Decides for the users that are nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._graph = NodeGraph(store)

    def allows(self, attributes: Attributes) -> bool:
        """Whether a node may do something; False for users that are none."""
        node = node_of(attributes.user)
        if not node or attributes.path:
            return False
        kind = (attributes.group, attributes.resource)
        if attributes.verb in _READ and kind in _READABLE and not attributes.subresource:
            return True
        rule = _RULES.get(kind)
        return rule is not None and rule(self, node, attributes)

    def _node(self, node: str, asked: Attributes) -> bool:
        if asked.subresource not in ("", "status"):
            return False
        return asked.verb == "create" or (
            asked.name == node and asked.verb in _CHANGE | {"get", "delete"}
        )

    def _lease(self, node: str, asked: Attributes) -> bool:
        if asked.namespace != LEASE_NAMESPACE or asked.subresource:
            return False
        return asked.verb == "create" or (asked.name == node and asked.verb in _CHANGE | {"get"})

    def _event(self, _node: str, asked: Attributes) -> bool:
        return asked.verb in _CHANGE | {"create"}

    def _pod(self, node: str, asked: Attributes) -> bool:
        own = self._document(storage(POD), asked)
        if own is None or at(own, "spec", "nodeName") != node:
            return False
        if asked.subresource == "status":
            return asked.verb in _CHANGE
        return asked.verb == "delete" and not asked.subresource

    def _vmi(self, node: str, asked: Attributes) -> bool:
        if asked.subresource:
            return False
        if asked.verb in ("list", "watch"):
            return asked.labels == f"{NODE_LABEL}={node}"
        key = Key(asked.namespace, asked.name)
        return asked.verb in _CHANGE | {"get"} and self._graph.places(node, key)

    def _named(self, node: str, asked: Attributes) -> bool:
        """Whether an object is named; a list or a watch must select it by ``metadata.name``."""
        if asked.verb not in _READ or asked.subresource or not asked.name:
            return False
        reference = Reference(_KINDS[asked.resource].name, asked.name)
        return self._graph.names(node, asked.namespace, reference) or node_claims.names(
            self._store, node, asked.namespace, reference
        )

    def _account(self, node: str, asked: Attributes) -> bool:
        if asked.subresource == "token" and asked.verb == "create":
            reference = Reference(SERVICE_ACCOUNT.name, asked.name)
            return self._graph.names(node, asked.namespace, reference)
        return self._named(node, asked)

    def _claim(self, node: str, asked: Attributes) -> bool:
        if asked.verb not in _CHANGE or asked.subresource not in ("", "status"):
            return False
        claim = self._document(storage(CLAIM), asked)
        if claim is None:
            return False
        return is_claim_at(claim, node, self._store)

    def _volume(self, node: str, asked: Attributes) -> bool:
        if asked.subresource not in ("", "status"):
            return False
        if asked.verb == "create":
            return True
        volume = self._document(storage(PERSISTENT_VOLUME), asked)
        return (
            volume is not None and asked.verb in _CHANGE | {"delete"} and self._is_at(volume, node)
        )

    def _is_at(self, volume: Document, node: str) -> bool:
        return is_volume_at(volume, node, self._store)

    def _document(self, kind: str, asked: Attributes) -> Document | None:
        record = self._store.latest(kind, Key(asked.namespace, asked.name))
        return record.document() if record is not None else None


_Rule = Callable[[NodeAuthorizer, str, Attributes], bool]
_RULES: Final[Mapping[tuple[str, str], _Rule]] = {
    ("", "nodes"): NodeAuthorizer._node,  # noqa: SLF001
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,  # noqa: SLF001
    ("", "events"): NodeAuthorizer._event,  # noqa: SLF001
    ("events.k8s.io", "events"): NodeAuthorizer._event,  # noqa: SLF001
    ("", "pods"): NodeAuthorizer._pod,  # noqa: SLF001
    ("kubevirt.io", "virtualmachineinstances"): NodeAuthorizer._vmi,  # noqa: SLF001
    ("", "secrets"): NodeAuthorizer._named,  # noqa: SLF001
    ("", "configmaps"): NodeAuthorizer._named,  # noqa: SLF001
    ("", "serviceaccounts"): NodeAuthorizer._account,  # noqa: SLF001
    ("", "persistentvolumeclaims"): NodeAuthorizer._claim,  # noqa: SLF001
    ("", "persistentvolumes"): NodeAuthorizer._volume,  # noqa: SLF001
}
