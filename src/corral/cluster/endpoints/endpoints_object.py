"""The Endpoints object of a Service: addresses of ready and of other pods. Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from lightkube.models.core_v1 import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    Pod,
    Service,
)

from corral.api.object import Document
from corral.cluster.endpoints.members import (
    Port,
    address,
    families,
    hostname,
    is_headless,
    node,
    ports,
    spec_of,
    target,
)
from corral.cluster.endpoints.slices import HEADLESS_LABEL, TRIGGER
from corral.reconcile.objects import (
    annotations_of,
    is_being_deleted,
    is_ready,
    key_of,
    labels_of,
    version_of,
)

MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
TRUNCATED = "truncated"
MAX_ADDRESSES = 1000
"""Maximum of addresses in one object; an annotation marks a truncated one."""

ByState = tuple[list[EndpointAddress], list[EndpointAddress]]
"""Addresses of ready pods, and of others."""


def is_ours(endpoints: Endpoints) -> bool:
    """Report whether this controller created the object, so that it is deleted with the Service."""
    return labels_of(endpoints).get(MANAGED_BY) == MANAGER


def plan(
    service: Service, pods: Sequence[Pod], present: Endpoints | None, trigger: str
) -> Document | None:
    """Return a new document, a merge patch, or None for no change."""
    subsets, is_truncated = _truncated(_subsets(service, pods))
    labels = {name: text for name, text in labels_of(service).items() if name != HEADLESS_LABEL}
    labels[MANAGED_BY] = MANAGER
    if is_headless(service):
        labels[HEADLESS_LABEL] = ""
    annotations = {OVER_CAPACITY: TRUNCATED} if is_truncated else {}
    if trigger:
        annotations[TRIGGER] = trigger
    key = key_of(service)
    if present is None:
        metadata: Document = {"name": key.name, "namespace": key.namespace}
        metadata |= {"labels": labels, "annotations": annotations}
        return {"metadata": metadata, "subsets": subsets}
    says_truncated = annotations_of(present).get(OVER_CAPACITY) == TRUNCATED
    if (
        (present.subsets or []) == subsets
        and labels_of(present) == labels
        and says_truncated == is_truncated
    ):
        return None
    return {
        "metadata": {
            "resourceVersion": version_of(present),
            "labels": dict.fromkeys(labels_of(present)) | labels,
            "annotations": {OVER_CAPACITY: None, TRIGGER: None} | annotations,
        },
        "subsets": subsets,
    }


def _subsets(service: Service, pods: Iterable[Pod]) -> list[EndpointSubset]:
    """Group ports by the addresses that offer them."""
    always = bool(spec_of(service).publishNotReadyAddresses)
    offered: dict[Port | None, ByState] = {}
    for pod in sorted(pods, key=lambda pod: _order(address(pod, families(service)[0]))):
        ip = address(pod, families(service)[0])
        if not ip or (is_being_deleted(pod) and not always):
            continue
        entry = EndpointAddress(
            ip=ip,
            hostname=hostname(service, pod),
            nodeName=node(pod),
            targetRef=target(pod),
        )
        lists: Sequence[Port | None] = ports(service, pod)
        if not spec_of(service).ports and is_headless(service):
            lists = (None,)
        for port in lists:
            ready, others = offered.setdefault(port, ([], []))
            (ready if always or is_ready(pod) else others).append(entry)
    # Keyed by address identities, not compared pairwise: there may be thousands of ports.
    by_addresses: dict[tuple[tuple[int, ...], ...], tuple[ByState, list[Port]]] = {}
    for port, by_state in offered.items():
        identities = tuple(tuple(map(id, addresses)) for addresses in by_state)
        _, shared = by_addresses.setdefault(identities, (by_state, []))
        if port is not None:
            shared.append(port)
    return [
        EndpointSubset(
            addresses=ready or None,
            notReadyAddresses=others or None,
            ports=[_endpoint_port(port) for port in shared] or None,
        )
        for (ready, others), shared in by_addresses.values()
    ]


def _order(ip: str) -> tuple[int, int]:
    """Sort addresses by number, missing ones first."""
    if not ip:
        return 0, 0
    parsed = ip_address(ip)
    return parsed.version, int(parsed)


def _endpoint_port(port: Port) -> EndpointPort:
    return EndpointPort(
        name=port.name or None,
        port=port.number,
        protocol=port.protocol,
        appProtocol=port.app_protocol,
    )


def _truncated(subsets: list[EndpointSubset]) -> tuple[list[EndpointSubset], bool]:
    """Return at most ``MAX_ADDRESSES``, ready ones first, and whether some were dropped."""
    remaining = MAX_ADDRESSES
    kept: list[tuple[list[EndpointAddress], list[EndpointAddress]]] = []
    ready = [(each.addresses or [])[:] for each in subsets]
    others = [(each.notReadyAddresses or [])[:] for each in subsets]
    total = sum(map(len, ready)) + sum(map(len, others))
    if total <= MAX_ADDRESSES:
        return subsets, False
    for lists in (ready, others):
        for addresses in lists:
            del addresses[remaining:]
            remaining -= len(addresses)
    kept = list(zip(ready, others, strict=True))
    return [
        EndpointSubset(
            addresses=ready_kept or None, notReadyAddresses=others_kept or None, ports=subset.ports
        )
        for subset, (ready_kept, others_kept) in zip(subsets, kept, strict=True)
        if ready_kept or others_kept
    ], True
