"""The older Endpoints object of a Service: one list of addresses, ready ones and others."""

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
LARGEST = 1000
"""Addresses of one Endpoints object; of more it tells that it tells not all."""

Addresses = tuple[EndpointAddress, ...]
ByState = tuple[list[EndpointAddress], list[EndpointAddress]]
"""Those that are ready, and the others."""


def is_ours(endpoints: Endpoints) -> bool:
    """Whether this loop made the object, so that it may go with its Service."""
    return labels_of(endpoints).get(MANAGED_BY) == MANAGER


def plan(
    service: Service, pods: Sequence[Pod], present: Endpoints | None, trigger: str
) -> Document | None:
    """What to write: a whole document where there is none yet, a merge patch, or nothing."""
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
    """Each port with the addresses that offer it; ports that the same addresses offer together."""
    always = bool(spec_of(service).publishNotReadyAddresses)
    offered: dict[Port | None, ByState] = {}
    for pod in sorted(pods, key=lambda pod: _order(address(pod, families(service)[0]))):
        ip = address(pod, families(service)[0])
        if not ip or (is_being_deleted(pod) and not always):
            continue
        told = EndpointAddress(
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
            (ready if always or is_ready(pod) else others).append(told)
    # Found by who offers them: of thousands of ports, each may be offered by others.
    together: dict[tuple[tuple[int, ...], ...], tuple[ByState, list[Port]]] = {}
    for port, by_state in offered.items():
        who = tuple(tuple(map(id, addresses)) for addresses in by_state)
        _, shared = together.setdefault(who, (by_state, []))
        if port is not None:
            shared.append(port)
    return [
        EndpointSubset(
            addresses=ready or None,
            notReadyAddresses=others or None,
            ports=[_told(port) for port in shared] or None,
        )
        for (ready, others), shared in together.values()
    ]


def _order(ip: str) -> tuple[int, int]:
    """Addresses by number, those that are none first."""
    if not ip:
        return 0, 0
    parsed = ip_address(ip)
    return parsed.version, int(parsed)


def _told(port: Port) -> EndpointPort:
    return EndpointPort(
        name=port.name or None,
        port=port.number,
        protocol=port.protocol,
        appProtocol=port.app_protocol,
    )


def _truncated(subsets: list[EndpointSubset]) -> tuple[list[EndpointSubset], bool]:
    """As many addresses as may be, ready ones before others; and whether some were left out."""
    room = LARGEST
    kept: list[tuple[list[EndpointAddress], list[EndpointAddress]]] = []
    ready = [(each.addresses or [])[:] for each in subsets]
    others = [(each.notReadyAddresses or [])[:] for each in subsets]
    whole = sum(map(len, ready)) + sum(map(len, others))
    if whole <= LARGEST:
        return subsets, False
    for lists in (ready, others):
        for addresses in lists:
            del addresses[room:]
            room -= len(addresses)
    kept = list(zip(ready, others, strict=True))
    return [
        EndpointSubset(addresses=yes or None, notReadyAddresses=no or None, ports=subset.ports)
        for subset, (yes, no) in zip(subsets, kept, strict=True)
        if yes or no
    ], True
