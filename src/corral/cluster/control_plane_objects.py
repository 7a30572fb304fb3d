"""Objects that clients expect of every control plane, and on which nothing acts here.

kube-apiserver keeps the ServiceCIDR ``kubernetes`` and the mandatory FlowSchemas and
PriorityLevelConfigurations; a kubelet creates the CSINode of its Node.  One that is deleted or
changed is restored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from lightkube.models.core_v1 import Node
from lightkube.models.flowcontrol_v1 import FlowSchema, PriorityLevelConfiguration
from lightkube.models.networking_v1 import ServiceCIDR
from lightkube.models.storage_v1 import CSINode

from corral.api.addresses import Network
from corral.api.conditions import get_condition, set_condition
from corral.api.errors import AlreadyExists
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.informer import Informer
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

NAME: Final = "kubernetes"
"""The ServiceCIDR of the ranges that the API server was started with."""

_GROUPS: Final = ("system:unauthenticated", "system:authenticated")
_AUTOUPDATE: Final = {"apf.kubernetes.io/autoupdate-spec": "true"}


class Target(NamedTuple):
    """One object: its type, and the name that it has in the cluster."""

    view: type[msgspec.Struct]
    name: str

    def __str__(self) -> str:
        return f"{self.view.__name__} {self.name}"


class Desired(NamedTuple):
    """The spec of an object, its annotations, and its condition: type, status, reason, message."""

    spec: Document
    condition: tuple[str, str, str, str] | None = None
    annotations: Mapping[str, str] = {}


def controller(*service_cidrs: Network) -> Callable[[ControllerContext], Controller[Target]]:
    """Make the controller; ``service_cidrs`` are the ranges of Services, one an IP version."""

    def make(context: ControllerContext) -> Controller[Target]:
        loop = ControlPlaneObjects(context, {**_service_cidr(service_cidrs), **_flow_control()})
        return Controller(
            "control-plane-objects",
            loop.reconcile,
            queue=loop.queue,
            sources=loop.sources,
            workers=1,
        )

    return make


class ControlPlaneObjects:
    """The desired objects, and caches of the observed ones."""

    def __init__(self, context: ControllerContext, desired: Mapping[Target, Desired]) -> None:
        self.queue = WorkQueue[Target]()
        self._client = context.client
        self._clock = context.clock
        self._desired = desired
        self._nodes = context.informers.of(Node)
        self._nodes.handle(self._node_changed)
        self._observed = _informers(context)
        for informer in self._observed.values():
            informer.handle(self._changed)
        for target in desired:
            self.queue.add(target)
        self.sources = (self._nodes, *self._observed.values())

    async def reconcile(self, target: Target) -> None:
        """Create one object, or restore its spec and its condition."""
        observed: Any = self._observed[target.view].get(Key("", target.name))
        if target.view is CSINode:
            if observed is None:
                await self._create_csi_node(target)
            return
        desired = self._desired[target]
        if observed is None:
            annotations = dict(desired.annotations)
            metadata = {"name": target.name, "annotations": annotations}
            await self._create(target, {"metadata": metadata, "spec": desired.spec})
        elif is_being_deleted(observed):
            return
        elif observed.spec != msgspec.convert({"spec": desired.spec}, target.view).spec:  # type: ignore[attr-defined]
            # As a whole: a merge would leave what somebody added to the spec.
            change = [{"op": "add", "path": "/spec", "value": desired.spec}]
            await self._client.patch(target.view, Key("", target.name), change)
        elif desired.condition is not None:
            await self._set_condition(target, observed, *desired.condition)

    async def _create(self, target: Target, document: Document) -> None:
        try:
            await self._client.create(target.view, document)
        except AlreadyExists:
            return  # the cache has yet to show it

    async def _create_csi_node(self, target: Target) -> None:
        """Create the CSINode of a Node; the garbage collector deletes it with its Node."""
        node = self._nodes.get(Key("", target.name))
        if node is None or is_being_deleted(node):
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": target.name, "uid": uid_of(node)}
        metadata = {"name": target.name, "ownerReferences": [owner]}
        await self._create(target, {"metadata": metadata, "spec": {"drivers": []}})

    async def _set_condition(self, target: Target, observed: Any, name: str, *words: str) -> None:
        status, reason, message = words
        present = msgspec.to_builtins((observed.status and observed.status.conditions) or [])
        if (get_condition(present, name) or {}).get("status") == status:
            return
        now = rfc3339(self._clock())
        new = set_condition(present, name, status, reason=reason, message=message, now=now)
        change = {"status": {"conditions": new}}
        await self._client.patch(target.view, Key("", target.name), change, subresource="status")

    def _changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        changed = new or old
        assert changed is not None
        target = Target(type(changed), key_of(changed).name)
        if target in self._desired or (target.view is CSINode and new is None):
            self.queue.add(target)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:
            self.queue.add(Target(CSINode, key_of(new).name))


def _informers(context: ControllerContext) -> dict[type[msgspec.Struct], Informer[Any]]:
    kept = (ServiceCIDR, PriorityLevelConfiguration, FlowSchema, CSINode)
    return {view: context.informers.of(view) for view in kept}


def _service_cidr(cidrs: Iterable[Network]) -> dict[Target, Desired]:
    ready = ("Ready", "True", "", "Kubernetes default Service CIDR is ready")
    spec = {"cidrs": [str(each) for each in cidrs]}
    return {Target(ServiceCIDR, NAME): Desired(spec, ready)}


def _flow_control() -> dict[Target, Desired]:
    """The FlowSchemas and levels that kube-apiserver calls mandatory."""
    limited = {
        "nominalConcurrencyShares": 5,
        "lendablePercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    levels: dict[str, Document] = {
        "exempt": {
            "type": "Exempt",
            "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
        },
        "catch-all": {"type": "Limited", "limited": limited},
    }
    schemas = {
        "exempt": _flow_schema("exempt", 1, ["system:masters"]),
        "catch-all": _flow_schema("catch-all", 10_000, _GROUPS, by="ByUser"),
    }
    return {
        **{
            Target(PriorityLevelConfiguration, name): Desired(spec, annotations=_AUTOUPDATE)
            for name, spec in levels.items()
        },
        **{
            Target(FlowSchema, name): Desired(spec, _found(name), _AUTOUPDATE)
            for name, spec in schemas.items()
        },
    }


def _flow_schema(level: str, precedence: int, groups: Iterable[str], *, by: str = "") -> Document:
    """Return the spec of a FlowSchema that matches every request of some groups."""
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rules = {
        "subjects": [{"kind": "Group", "group": {"name": name}} for name in groups],
        "resourceRules": [{**every, "clusterScope": True}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    distinguisher = {"distinguisherMethod": {"type": by}} if by else {}
    return {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        **distinguisher,
        "rules": [rules],
    }


def _found(level: str) -> tuple[str, str, str, str]:
    message = (
        f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" '
        "and it exists"
    )
    return "Dangling", "False", "Found", message
