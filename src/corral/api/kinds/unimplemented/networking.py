"""ServiceCIDR and IPAddress (networking.k8s.io)."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Final

from lightkube.models.networking_v1 import IPAddress, ServiceCIDR

from corral.api.addresses import parse_address
from corral.api.errors import Cause
from corral.api.kind import Column, at
from corral.api.kinds.causes import invalid, required
from corral.api.kinds.columns import age
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = "networking.k8s.io/v1"
_WHY: Final = "corral takes addresses of Services from the range it was started with"
_MOST_RANGES: Final = 2


def _check_ranges(document: Document) -> Iterator[Cause]:
    ranges = at(document, "spec", "cidrs") or ()
    if not ranges:
        yield required("spec.cidrs", "at least one CIDR required")
    elif len(ranges) > _MOST_RANGES:
        yield invalid("spec.cidrs", list(ranges), "may only hold up to 2 values")
    for index, each in enumerate(ranges[:_MOST_RANGES]):
        try:
            ip_network(each)
        except ValueError:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(f"spec.cidrs[{index}]", each, why)


def _check_address(document: Document) -> Iterator[Cause]:
    name = document["metadata"].get("name") or ""
    address = parse_address(name)
    if address is None or str(address) != name:
        yield invalid("metadata.name", name, "must be a valid IP address in canonical form")
    parent = at(document, "spec", "parentRef") or {}
    for each in ("resource", "name"):
        if not parent.get(each):
            yield required(f"spec.parentRef.{each}")


def _parent(document: Document) -> str:
    parent = at(document, "spec", "parentRef") or {}
    parts = (parent.get(each) for each in ("group", "resource", "namespace", "name"))
    return "/".join(each for each in parts if each)


KINDS = (
    unimplemented(
        ServiceCIDR,
        "servicecidrs",
        _V1,
        Column(
            name="CIDRs",
            cell=lambda document: ",".join(at(document, "spec", "cidrs") or ()),
            description="the ranges",
        ),
        age(),
        why=_WHY,
        status=True,
        causes=_check_ranges,
    ),
    unimplemented(
        IPAddress,
        "ipaddresses",
        _V1,
        Column(name="ParentRef", cell=_parent, description="the object that has the address"),
        age(),
        why=_WHY,
        short=("ip",),
        causes=_check_address,
    ),
)
