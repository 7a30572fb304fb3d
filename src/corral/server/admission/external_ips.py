"""Admission of Services' external IPs and restricted host ports.

Traffic to an address in ``spec.externalIPs`` goes to the Service, even if another host owns
it (CVE-2020-8554).  So addresses of this cluster are rejected, and others require the right to
``create`` ``services/externalips``; a load balancer's ports below 1024, and ports that the
administrator reserves, require ``create`` on ``services/hostports``.  Existing values stay valid,
as with Kubernetes' admission plugin DenyServiceExternalIPs.
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
"""Virtual subresources: they exist as rights only."""
PRIVILEGED: Final = 1024
"""Ports below this are privileged on the host."""


class ServiceExposure:
    """Checks the rights to external IPs and restricted host ports of Services."""

    def __init__(self, store: Store, ranges: ServiceRanges, authorizer: Authorizer) -> None:
        self._store = store
        self._ranges = ranges
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """Return the guards, by the resource name of the stored kind."""
        return {storage(SERVICE): self._check_service}

    def _check_service(self, call: Call, document: Document, old: Document | None) -> None:
        """Check a Service.  Raises Invalid and Forbidden."""
        spec, before = document["spec"], old["spec"] if old else {}
        previous = before.get("externalIPs") or ()
        if added := [each for each in spec.get("externalIPs") or () if each not in previous]:
            if causes := list(self._conflicts(spec, added)):
                raise SERVICE.invalid(document["metadata"]["name"], causes)
            why = f"spec.externalIPs {', '.join(added)} would receive the traffic of others"
            self._require(call, document, ADDRESSES, why)
        if ports := sorted(self._restricted_ports(spec) - self._restricted_ports(before)):
            shown = ", ".join(f"{number}/{protocol}" for number, protocol in ports)
            why = f"ports {shown} of the host are not for everybody's Services"
            self._require(call, document, PORTS, why)

    def _conflicts(self, spec: Document, added: list[str]) -> Iterator[Cause]:
        """Yield causes for addresses that belong to this cluster."""
        for index, text in enumerate(spec["externalIPs"]):
            address = parse_address(text)
            if text in added and address and (owner := self._owner(address)):
                yield invalid(f"spec.externalIPs[{index}]", text, f"may not be {owner}")

    def _owner(self, address: Address) -> str:
        """Return the owner of an address in this cluster; "" if there is none."""
        address = getattr(address, "ipv4_mapped", None) or address
        for users, ranges in (("Services", self._ranges.networks), ("pods", self._ranges.pods)):
            for each in ranges:
                if address in each:
                    return f"in the range of {users} ({each})"
        if address in self._ranges.name_servers:
            return "the address of a name server"
        for name, node_address in self._node_addresses():
            if address == node_address:
                return f"the address of node {name}"
        return ""

    def _node_addresses(self) -> Iterator[tuple[str, Address | None]]:
        for record in self._store.latest_all(storage(NODE)).values():
            for each in at(record.document(), "status", "addresses") or ():
                yield record.key.name, parse_address(each.get("address", ""))

    def _restricted_ports(self, spec: Document) -> set[tuple[int, str]]:
        """Return the restricted host ports that a Service uses."""
        ports = spec.get("ports") or ()
        is_ours = spec.get("type") == LOAD_BALANCER and not spec.get("loadBalancerClass")
        balanced = [(port["port"], port["protocol"]) for port in ports] if is_ours else []
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
        """Check the right to a virtual subresource.  Raises Forbidden."""
        name = document["metadata"]["name"]
        attributes = Attributes(call.user, "create", "", "services", right, call.namespace, name)
        if self._authorizer.allows(attributes, is_component=call.is_by_component):
            return
        lacks = f'User "{call.user.name}" cannot create resource "services/{right}"'
        raise forbidden(
            SERVICE, name, f'{why}: {lacks} in API group "" in the namespace "{call.namespace}"'
        )
