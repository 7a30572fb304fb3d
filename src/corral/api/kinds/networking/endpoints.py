"""Endpoints: the addresses of a Service, in the old form; EndpointSlice is the newer one."""

from collections.abc import Iterator

from lightkube.models.core_v1 import Endpoints

from corral.api.addresses import address_faults, special_faults
from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, Version
from corral.api.kinds.causes import each_invalid, required
from corral.api.kinds.columns import NONE, age, few
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.networking.service_validation import port_causes
from corral.api.names import label_faults, subdomain_faults
from corral.api.object import Document


def _ready_addresses(document: Document) -> Iterator[str]:
    """Yield each ready address with each of its ports."""
    for subset in document.get("subsets") or ():
        addresses = [one.get("ip", "") for one in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:  # a headless service need not have any
            yield from addresses
        for port in ports or ():
            for address in addresses:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{port['port']}"


def _addresses_text(document: Document) -> str:
    return few(list(_ready_addresses(document))) if document.get("subsets") else NONE


def default(document: Document) -> None:
    """Default the protocol of ports to TCP."""
    for subset in document.get("subsets") or ():
        for port in subset.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"


def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    """Validate Endpoints: subsets have valid addresses and uniquely named ports."""
    return Verdict(limited(_check_subsets(document.get("subsets") or [])))


def _check_subsets(subsets: list[Document]) -> Iterator[Cause]:
    for index, subset in enumerate(subsets):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(path, "must specify `addresses` or `notReadyAddresses`")
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or ()):
                yield from _check_address(f"{path}.{field}[{place}]", address)
        ports = subset.get("ports") or []
        for place, port in enumerate(ports):
            yield from port_causes(f"{path}.ports[{place}]", port, named=len(ports) > 1)


def _check_address(path: str, address: Document) -> Iterator[Cause]:
    ip, host, node = address["ip"], address.get("hostname"), address.get("nodeName")
    yield from each_invalid(f"{path}.ip", ip, address_faults(ip) or special_faults(ip))
    if host:
        yield from each_invalid(f"{path}.hostname", host, label_faults(host))
    if node is not None:
        yield from each_invalid(f"{path}.nodeName", node, subdomain_faults(node))


ENDPOINTS = kubernetes_kind(
    group="",
    plural="endpoints",
    short=("ep",),
    versions=(
        Version(
            name="v1",
            deprecated=True,
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    view=Endpoints,
    status=False,
    columns=(
        Column(
            name="Endpoints", cell=_addresses_text, description="addresses and ports that are ready"
        ),
        age(),
    ),
    default=default,
    validate=validate,
)
