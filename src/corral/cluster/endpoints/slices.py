"""Packs the endpoints of a Service into EndpointSlices with few changes. Pure.

Every watcher receives each changed slice, so endpoints stay in their slices; new ones fill slices
that are written anyway (Kubernetes' endpointslice reconciler).
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
"""Annotation: time of the oldest change that a write covers, to measure its propagation delay."""
MAX_ENDPOINTS = 100
"""Maximum of endpoints in one slice (kube-controller-manager's --max-endpoints-per-slice)."""

Identity = tuple[str, str]
"""Address and uid of its target: another pod with the same address is another endpoint."""


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints with the same address type and ports, which may share slices."""

    address_type: str
    ports: tuple[Port, ...] = ()
    endpoints: Mapping[Identity, Endpoint] = field(default_factory=dict)
    may_be_empty: bool = False
    """True if to write an empty slice if there are no endpoints."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Metadata that all slices of one Service share."""

    namespace: str
    prefix: str
    owner: Document
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """Slices to create, patches by slice, and slices to delete."""

    create: list[Document] = field(default_factory=list)
    update: list[tuple[EndpointSlice, Document]] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.delete)


@dataclass(slots=True)
class _Draft:
    """Desired slice; ``slice`` is the observed one, if there is one."""

    slice: EndpointSlice | None
    endpoints: list[Endpoint]
    is_changed: bool

    @property
    def free(self) -> int:
        return MAX_ENDPOINTS - len(self.endpoints)


def groups(service: Service, pods: Sequence[Pod]) -> list[Group]:
    """Return the pods of a Service by address family and ports."""
    found = []
    for family in families(service):
        by_ports: dict[tuple[Port, ...], dict[Identity, Endpoint]] = {}
        for pod in pods:
            entry = endpoint(service, pod, family)
            if entry is not None:
                endpoints = by_ports.setdefault(ports(service, pod), {})
                endpoints[identity(entry)] = entry
        if by_ports:
            found += [Group(family, shared, endpoints) for shared, endpoints in by_ports.items()]
        else:
            found.append(Group(family, may_be_empty=True))
    return found


def frame(service: Service, trigger: str) -> Frame:
    """Return the metadata of a Service's slices, with the labels of the Service."""
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
    """Return the owner reference of slices."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": key_of(view).name,
        "uid": uid_of(view),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def identity(entry: Endpoint) -> Identity:
    return entry.addresses[0], (entry.targetRef and entry.targetRef.uid) or ""


def plan(desired: Iterable[Group], existing: Iterable[EndpointSlice], frame: Frame) -> Changes:
    """Return the changes from the existing slices to the desired groups."""
    changes = Changes()
    present: dict[tuple[str, tuple[Port, ...]], list[EndpointSlice]] = {}
    for each in sorted(existing, key=lambda each: key_of(each).name):
        present.setdefault((each.addressType, _ports_of(each)), []).append(each)
    for group in desired:
        drafts = _drafts(group, present.pop((group.address_type, group.ports), ()), frame)
        _add_changes(group, drafts, frame, changes)
    changes.delete.extend(each for left in present.values() for each in left)
    return changes


def _drafts(group: Group, slices: Sequence[EndpointSlice], frame: Frame) -> list[_Draft]:
    """Assign endpoints to slices: to their present slice, if they are in one."""
    unassigned = dict(group.endpoints)
    drafts = []
    for each in slices:
        before = each.endpoints or []
        kept = [
            unassigned.pop(each)
            for each in map(identity, before[:MAX_ENDPOINTS])
            if each in unassigned
        ]
        drafts.append(_Draft(each, kept, kept != before or not _has_metadata(each, frame)))
    rest = list(unassigned.values())
    # The fullest first, so that slices become full and others run empty.
    for draft in sorted(drafts, key=lambda draft: draft.free):
        if draft.is_changed and draft.endpoints:
            _fill(draft, rest)
    while rest:
        fitting = [draft for draft in drafts if not draft.is_changed and draft.free >= len(rest)]
        if fitting:
            _fill(min(fitting, key=lambda draft: draft.free), rest)
            continue
        empty = next((draft for draft in drafts if draft.slice and not draft.endpoints), None)
        if empty is None:
            drafts.append(empty := _Draft(None, [], is_changed=True))
        _fill(empty, rest)
    return drafts


def _fill(draft: _Draft, rest: list[Endpoint]) -> None:
    count = min(draft.free, len(rest))
    if count:
        draft.endpoints += rest[:count]
        del rest[:count]
        draft.is_changed = True


def _add_changes(group: Group, drafts: list[_Draft], frame: Frame, changes: Changes) -> None:
    """Add the changes of drafts; delete empty slices, except one if the group may be empty."""
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


def _has_metadata(present: EndpointSlice, frame: Frame) -> bool:
    """Report whether a slice has the desired metadata; the trigger time alone is no change."""
    annotations = {
        name: value for name, value in annotations_of(present).items() if name != TRIGGER
    }
    desired = {name: value for name, value in frame.annotations.items() if name != TRIGGER}
    owners = [each.uid for each in owners_of(present)]
    return (
        labels_of(present) == frame.labels
        and annotations == desired
        and owners == [frame.owner["uid"]]
    )


def _ports_of(present: EndpointSlice) -> tuple[Port, ...]:
    return tuple(_port(each) for each in present.ports or ())


def _port(entry: EndpointPort) -> Port:
    return Port(
        entry.name or "", entry.protocol or "TCP", entry.port or 0, entry.appProtocol or None
    )
