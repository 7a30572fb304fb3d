"""Slices of Endpoints that people write for a Service without selector.

Whoever looks for endpoints reads slices; so what stands in an Endpoints object is told there too
(Kubernetes' endpointslicemirroring controller).
"""

from collections.abc import Iterable
from ipaddress import ip_address

from lightkube.models.core_v1 import EndpointAddress, EndpointPort, Endpoints, EndpointSubset
from lightkube.models.discovery_v1 import Endpoint, EndpointConditions

from corral.cluster.endpoints.members import Port
from corral.cluster.endpoints.slices import (
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER,
    Frame,
    Group,
    Identity,
    identity,
    owner,
)
from corral.reconcile.objects import annotations_of, key_of, labels_of

MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LARGEST = 1000
"""Addresses of one subset that are mirrored."""


def is_mirrored(endpoints: Endpoints) -> bool:
    """Whether an object is to be mirrored: not where it says no, nor where it is a lock."""
    return labels_of(endpoints).get(SKIP) != "true" and LEADER not in annotations_of(endpoints)


def groups(endpoints: Endpoints) -> list[Group]:
    """The addresses of each subset, by family."""
    merged: dict[tuple[str, tuple[Port, ...]], dict[Identity, Endpoint]] = {}
    for subset in endpoints.subsets or ():
        ports = tuple(_port(each) for each in subset.ports or ())
        for told in _told(subset):
            family = "IPv6" if ":" in told.addresses[0] else "IPv4"
            merged.setdefault((family, ports), {})[identity(told)] = told
    return [Group(family, ports, told) for (family, ports), told in merged.items()]


def skipped(endpoints: Endpoints) -> int:
    """How many addresses are not mirrored, being too many."""
    return sum(max(0, _size(subset) - LARGEST) for subset in endpoints.subsets or ())


def frame(endpoints: Endpoints) -> Frame:
    """The slices carry what the Endpoints object carries, and go with it."""
    key = key_of(endpoints)
    dropped = {TRIGGER, LAST_APPLIED}
    annotations = annotations_of(endpoints).items()
    return Frame(
        namespace=key.namespace,
        prefix=f"{key.name}-",
        owner=owner("v1", "Endpoints", endpoints),
        labels={**labels_of(endpoints), SERVICE_NAME: key.name, MANAGED_BY: MANAGER},
        annotations={name: text for name, text in annotations if name not in dropped},
    )


def _size(subset: EndpointSubset) -> int:
    return len(subset.addresses or ()) + len(subset.notReadyAddresses or ())


def _told(subset: EndpointSubset) -> Iterable[Endpoint]:
    listed = [(each, True) for each in subset.addresses or ()]
    listed += [(each, False) for each in subset.notReadyAddresses or ()]
    return [_endpoint(each, ready=ready) for each, ready in listed[:LARGEST] if _is_address(each)]


def _endpoint(told: EndpointAddress, *, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=[told.ip],
        conditions=EndpointConditions(ready=ready),
        hostname=told.hostname or None,
        nodeName=told.nodeName or None,
        targetRef=told.targetRef,
    )


def _is_address(told: EndpointAddress) -> bool:
    try:
        ip_address(told.ip)
    except ValueError:
        return False
    return True


def _port(told: EndpointPort) -> Port:
    return Port(told.name or "", told.protocol or "TCP", told.port, told.appProtocol or None)
