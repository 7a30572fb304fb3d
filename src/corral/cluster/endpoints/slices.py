"""Packs the endpoints of a Service into EndpointSlices, changing as few of them as can be.

Every address that moves from one slice to another is told to everybody who watches, so endpoints
stay where they are; what is new fills slices that have to be written anyway (Kubernetes'
endpointslice reconciler).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from lightkube.models.core_v1 import Pod, Service
from lightkube.models.discovery_v1 import Endpoint, EndpointPort, EndpointSlice

from corral.api.object import Document
from corral.cluster.endpoints.members import (
    Port,
    endpoint,
    families,
    is_headless,
    ports,
)
from corral.reconcile.objects import (
    annotations_of,
    key_of,
    labels_of,
    owners_of,
    uid_of,
    version_of,
)

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS_LABEL = "service.kubernetes.io/headless"
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
"""Annotation: since when what a change tells of has been so; measures how long telling takes."""
LARGEST = 100
"""Endpoints of one slice (kube-controller-manager's --max-endpoints-per-slice)."""

Identity = tuple[str, str]
"""Address and uid of what has it: another pod with the same address is another endpoint."""


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that share their address type and their ports: they fit into the same slices."""

    address_type: str
    ports: tuple[Port, ...] = ()
    endpoints: Mapping[Identity, Endpoint] = field(default_factory=dict)
    may_be_empty: bool = False
    """Whether a slice is to be there even without endpoints: it says that there are none."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What all slices of one Service have in common."""

    namespace: str
    prefix: str
    owner: Document
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be written: documents, merge patches by slice, and slices that go."""

    create: list[Document] = field(default_factory=list)
    update: list[tuple[EndpointSlice, Document]] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.delete)


@dataclass(slots=True)
class _Draft:
    """A slice as it will be; ``slice`` is what it was, if it was."""

    slice: EndpointSlice | None
    endpoints: list[Endpoint]
    is_changed: bool

    @property
    def room(self) -> int:
        return LARGEST - len(self.endpoints)


def groups(service: Service, pods: Sequence[Pod]) -> list[Group]:
    """The pods of a Service by address family, and by the ports that they offer."""
    found = []
    for family in families(service):
        by_ports: dict[tuple[Port, ...], dict[Identity, Endpoint]] = {}
        for pod in pods:
            told = endpoint(service, pod, family)
            if told is not None:
                offered = by_ports.setdefault(ports(service, pod), {})
                offered[identity(told)] = told
        if by_ports:
            found += [Group(family, offered, told) for offered, told in by_ports.items()]
        else:
            found.append(Group(family, may_be_empty=True))
    return found


def frame(service: Service, trigger: str) -> Frame:
    """The name, owner and labels of a Service's slices; they carry the Service's own labels."""
    key = key_of(service)
    own = {SERVICE_NAME: key.name, MANAGED_BY: MANAGER}
    if is_headless(service):
        own[HEADLESS_LABEL] = ""
    reserved = {SERVICE_NAME, MANAGED_BY, HEADLESS_LABEL}
    copied = {name: value for name, value in labels_of(service).items() if name not in reserved}
    return Frame(
        namespace=key.namespace,
        prefix=f"{key.name}-",
        owner=owner("v1", "Service", service),
        labels={**copied, **own},
        annotations={TRIGGER: trigger} if trigger else {},
    )


def owner(api_version: str, kind: str, view: msgspec.Struct) -> Document:
    """A reference to the manager of slices."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": key_of(view).name,
        "uid": uid_of(view),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def identity(told: Endpoint) -> Identity:
    return told.addresses[0], (told.targetRef and told.targetRef.uid) or ""


def plan(wanted: Iterable[Group], existing: Iterable[EndpointSlice], frame: Frame) -> Changes:
    """What turns the slices that exist into those that are wanted."""
    changes = Changes()
    present: dict[tuple[str, tuple[Port, ...]], list[EndpointSlice]] = {}
    for each in sorted(existing, key=lambda each: key_of(each).name):
        present.setdefault((each.addressType, _ports_of(each)), []).append(each)
    for group in wanted:
        drafts = _drafts(group, present.pop((group.address_type, group.ports), ()), frame)
        _settle(group, drafts, frame, changes)
    changes.delete.extend(each for left in present.values() for each in left)
    return changes


def _drafts(group: Group, slices: Sequence[EndpointSlice], frame: Frame) -> list[_Draft]:
    """Where each endpoint goes: where it is already, if it is anywhere."""
    homeless = dict(group.endpoints)
    drafts = []
    for each in slices:
        before = each.endpoints or []
        kept = [
            homeless.pop(known) for known in map(identity, before[:LARGEST]) if known in homeless
        ]
        drafts.append(_Draft(each, kept, kept != before or not _is_framed(each, frame)))
    rest = list(homeless.values())
    # The fullest first, so that slices become full and others run empty.
    for draft in sorted(drafts, key=lambda draft: draft.room):
        if draft.is_changed and draft.endpoints:
            _fill(draft, rest)
    while rest:
        fitting = [draft for draft in drafts if not draft.is_changed and draft.room >= len(rest)]
        if fitting:
            _fill(min(fitting, key=lambda draft: draft.room), rest)
            continue
        empty = next((draft for draft in drafts if draft.slice and not draft.endpoints), None)
        if empty is None:
            drafts.append(empty := _Draft(None, [], is_changed=True))
        _fill(empty, rest)
    return drafts


def _fill(draft: _Draft, rest: list[Endpoint]) -> None:
    count = min(draft.room, len(rest))
    if count:
        draft.endpoints += rest[:count]
        del rest[:count]
        draft.is_changed = True


def _settle(group: Group, drafts: list[_Draft], frame: Frame, changes: Changes) -> None:
    """Turn drafts into changes; empty slices go, but for one where there is to be one."""
    keep_empty = group.may_be_empty
    for draft in drafts:
        if not draft.endpoints and not keep_empty and draft.slice is not None:
            changes.delete.append(draft.slice)
            continue
        keep_empty = False
        if draft.slice is None:
            changes.create.append(_document(group, draft, frame))
        elif draft.is_changed:
            changes.update.append((draft.slice, _patch(draft.slice, draft, frame)))
    if keep_empty:
        changes.create.append(_document(group, _Draft(None, [], is_changed=True), frame))


def _document(group: Group, draft: _Draft, frame: Frame) -> Document:
    return {
        "metadata": {
            "generateName": frame.prefix,
            "namespace": frame.namespace,
            "labels": dict(frame.labels),
            "annotations": dict(frame.annotations),
            "ownerReferences": [frame.owner],
        },
        "addressType": group.address_type,
        "ports": [port.in_slice() for port in group.ports],
        "endpoints": draft.endpoints,
    }


def _patch(present: EndpointSlice, draft: _Draft, frame: Frame) -> Document:
    annotations: dict[str, str | None] = dict.fromkeys(annotations_of(present))
    labels: dict[str, str | None] = dict.fromkeys(labels_of(present))
    return {
        "metadata": {
            "resourceVersion": version_of(present),
            "labels": {**labels, **frame.labels},
            "annotations": {**annotations, **frame.annotations},
            "ownerReferences": [frame.owner],
        },
        "endpoints": draft.endpoints,
    }


def _is_framed(present: EndpointSlice, frame: Frame) -> bool:
    """Whether a slice carries what it is to carry; when it last changed is no reason to write."""
    annotations = {
        name: value for name, value in annotations_of(present).items() if name != TRIGGER
    }
    wanted = {name: value for name, value in frame.annotations.items() if name != TRIGGER}
    owners = [each.uid for each in owners_of(present)]
    return (
        labels_of(present) == frame.labels
        and annotations == wanted
        and owners == [frame.owner["uid"]]
    )


def _ports_of(present: EndpointSlice) -> tuple[Port, ...]:
    return tuple(_port(each) for each in present.ports or ())


def _port(told: EndpointPort) -> Port:
    return Port(told.name or "", told.protocol or "TCP", told.port or 0, told.appProtocol or None)
