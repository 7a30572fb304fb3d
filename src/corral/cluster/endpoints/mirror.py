"""EndpointSlices of Endpoints that users write for a Service without selector. Pure.

Clients read slices, so Endpoints are mirrored there (Kubernetes' endpointslicemirroring
controller).
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
MAX_ADDRESSES = 1000
"""Maximum of mirrored addresses of one subset."""


def is_mirrored(endpoints: Endpoints) -> bool:
    """Report whether to mirror an object: not with the skip label, nor a leader election lock."""
    return labels_of(endpoints).get(SKIP) != "true" and LEADER not in annotations_of(endpoints)


def groups(endpoints: Endpoints) -> list[Group]:
    """Return the endpoints of all subsets by family and ports."""
    merged: dict[tuple[str, tuple[Port, ...]], dict[Identity, Endpoint]] = {}
    for subset in endpoints.subsets or ():
        ports = tuple(_port(each) for each in subset.ports or ())
        for address in _endpoints(subset):
            family = "IPv6" if ":" in address.addresses[0] else "IPv4"
            merged.setdefault((family, ports), {})[identity(address)] = address
    return [Group(family, ports, address) for (family, ports), address in merged.items()]


def skipped(endpoints: Endpoints) -> int:
    """Return the number of addresses beyond the maximum."""
    return sum(max(0, _size(subset) - MAX_ADDRESSES) for subset in endpoints.subsets or ())


def frame(endpoints: Endpoints) -> Frame:
    """Return the metadata of the slices: that of the Endpoints object, which owns them."""
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


def _endpoints(subset: EndpointSubset) -> Iterable[Endpoint]:
    listed = [(each, True) for each in subset.addresses or ()]
    listed += [(each, False) for each in subset.notReadyAddresses or ()]
    return [
        _endpoint(each, ready=ready) for each, ready in listed[:MAX_ADDRESSES] if _is_address(each)
    ]


def _endpoint(address: EndpointAddress, *, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=[address.ip],
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        nodeName=address.nodeName or None,
        targetRef=address.targetRef,
    )


def _is_address(address: EndpointAddress) -> bool:
    try:
        ip_address(address.ip)
    except ValueError:
        return False
    return True


def _port(address: EndpointPort) -> Port:
    return Port(
        address.name or "", address.protocol or "TCP", address.port, address.appProtocol or None
    )
