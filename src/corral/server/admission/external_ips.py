"""What a Service takes from others: addresses outside of the cluster, and ports of the host.

Traffic to an address in ``spec.externalIPs`` goes to the Service, whoever that address belongs to
(CVE-2020-8554).  So those that belong to somebody here are refused, and the others are for who may
``create`` ``services/externalips``; a load balancer's ports below 1024, and ports that the
administrator keeps, are for who may ``create`` ``services/hostports``.  What a Service has already
it keeps, as with Kubernetes' admission plugin DenyServiceExternalIPs.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.addresses import Address, parse_address
from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.kinds.core.kinds import NODE
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.networking.service_spec import LOAD_BALANCER, has_node_ports
from corral.api.object import Document
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.authz import Attributes, Authorizer
from corral.server.request.call import Call, Guard, forbidden, storage
from corral.store import Store

ADDRESSES: Final = "externalips"
PORTS: Final = "hostports"
"""Subresources that are nothing but rights."""
PRIVILEGED: Final = 1024
"""Ports below this are root's on the host."""


class Exposure:
    """Checks who writes Services that take something from others."""

    def __init__(self, store: Store, ranges: ServiceRanges, authorizer: Authorizer) -> None:
        self._store = store
        self._ranges = ranges
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """What checks each kind, by the name that it is stored under."""
        return {storage(SERVICE): self._service}

    def _service(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Invalid and Forbidden."""
        spec, before = document["spec"], old["spec"] if old else {}
        known = before.get("externalIPs") or ()
        if added := [each for each in spec.get("externalIPs") or () if each not in known]:
            if causes := list(self._taken(spec, added)):
                raise SERVICE.invalid(document["metadata"]["name"], causes)
            why = f"spec.externalIPs {', '.join(added)} would take what is sent to others"
            self._require(call, document, ADDRESSES, why)
        if ports := sorted(self._kept(spec) - self._kept(before)):
            shown = ", ".join(f"{number}/{protocol}" for number, protocol in ports)
            why = f"ports {shown} of the host are not for everybody's Services"
            self._require(call, document, PORTS, why)

    def _taken(self, spec: Document, added: list[str]) -> Iterator[Cause]:
        """The addresses that somebody has here."""
        for index, text in enumerate(spec["externalIPs"]):
            address = parse_address(text)
            if text in added and address and (owner := self._owner(address)):
                yield invalid(f"spec.externalIPs[{index}]", text, f"may not be {owner}")

    def _owner(self, address: Address) -> str:
        """Whose an address is; empty where nobody here has it."""
        address = getattr(address, "ipv4_mapped", None) or address
        for what, ranges in (("Services", self._ranges.networks), ("pods", self._ranges.pods)):
            for each in ranges:
                if address in each:
                    return f"in the range of {what} ({each})"
        if address in self._ranges.name_servers:
            return "the address of a name server"
        for name, told in self._node_addresses():
            if address == told:
                return f"the address of node {name}"
        return ""

    def _node_addresses(self) -> Iterator[tuple[str, Address | None]]:
        for record in self._store.latest_all(storage(NODE)).values():
            for each in at(record.document(), "status", "addresses") or ():
                yield record.key.name, parse_address(each.get("address", ""))

    def _kept(self, spec: Document) -> set[tuple[int, str]]:
        """The ports of the host that a Service takes and that are not for everybody."""
        ports = spec.get("ports") or ()
        own = spec.get("type") == LOAD_BALANCER and not spec.get("loadBalancerClass")
        balanced = [(port["port"], port["protocol"]) for port in ports] if own else []
        on_nodes = [
            (port["nodePort"], port["protocol"])
            for port in ports
            if has_node_ports(spec) and port.get("nodePort")
        ]
        return {
            (number, protocol)
            for number, protocol in (*balanced, *on_nodes)
            if number < PRIVILEGED or any(number in each for each in self._ranges.kept_ports)
        }

    def _require(self, call: Call, document: Document, right: str, why: str) -> None:
        """Raises Forbidden."""
        name = document["metadata"]["name"]
        wish = Attributes(call.user, "create", "", "services", right, call.namespace, name)
        if self._authorizer.allows(wish, inside=call.user is call.request.user):
            return
        lacks = f'User "{call.user.name}" cannot create resource "services/{right}"'
        raise forbidden(
            SERVICE, name, f'{why}: {lacks} in API group "" in the namespace "{call.namespace}"'
        )
