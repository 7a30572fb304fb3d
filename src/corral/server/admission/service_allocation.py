"""Allocation of Services' cluster IPs, node ports and health check ports.

Allocated values are read from the latest versions of all Services, staged ones included.  There is
no other record, so no value can leak or be allocated twice: a Service that is rejected, a dry run,
or whose write fails, allocates nothing, and a restart changes nothing.
"""

import random
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address
from itertools import chain
from typing import Final, NamedTuple

from corral.api.addresses import Address
from corral.api.errors import Cause, Details, InternalError
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.networking.service_spec import (
    NODE_PORT,
    NONE,
    family_of,
    has_node_ports,
    is_external_name,
    is_headless,
    needs_health_check,
)
from corral.api.object import Document, Key
from corral.server.admission.ip_families import assign_families
from corral.server.request.call import storage
from corral.store import Record, Store

Network = IPv4Network | IPv6Network

MAX_ADDRESSES: Final = 2**62
"""Of larger networks only the first so many addresses are used: the limit of ``range``."""


class StaticBand(NamedTuple):
    """The part of a range that is preferred for static allocation (KEP-3070, KEP-3668).

    One of ``share`` numbers, but at least 16 and at most ``max_size``; none of ranges up to 16.
    """

    share: int
    max_size: int

    def size(self, numbers: int) -> int:
        return 0 if numbers <= 16 else max(16, min(self.max_size, numbers // self.share))


ADDRESS_BAND: Final = StaticBand(share=16, max_size=256)
PORT_BAND: Final = StaticBand(share=32, max_size=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRanges:
    """The networks of cluster IPs, one per family, and the range of node ports.

    The first family is the default.  ``pods`` and ``name_servers`` are addresses that no external
    IP may have; ``routed_pods`` are the pod ranges that hosts lead to each other; ``kept_ports`` of
    the host are never allocated, and need a right to be requested (``external_ips``).  Raises
    ValueError for two networks of one family, and for none.
    """

    networks: tuple[Network, ...] = (IPv4Network("10.96.0.0/12"),)
    node_ports: range = range(30000, 32768)
    pods: tuple[Network, ...] = ()
    routed_pods: tuple[Network, ...] = ()
    name_servers: frozenset[Address] = frozenset()
    kept_ports: tuple[range, ...] = ()

    def __post_init__(self) -> None:
        versions = {network.version for network in self.networks}
        if not self.networks or len(versions) < len(self.networks):
            raise ValueError("services need one range of addresses for each family")

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(f"IPv{network.version}" for network in self.networks)

    def network(self, family: str) -> Network:
        return self.networks[self.families.index(family)]


def usable(network: Network) -> range:
    """Return the addresses of a network as numbers, without its own and IPv4's broadcast."""
    first = int(network.network_address)
    size = min(network.num_addresses, MAX_ADDRESSES)
    return range(first + 1, first + size - (1 if network.version == 4 else 0))


def pick(
    numbers: range, allocated: Container[int], band: int, random_source: random.Random
) -> int | None:
    """Return a random free number, or None; from the static ``band`` only if no other is left."""
    for numbers_part in (numbers[band:], numbers[:band]):
        if numbers_part:
            start = random_source.randrange(len(numbers_part))
            for number in chain(numbers_part[start:], numbers_part[:start]):
                if number not in allocated:
                    return number
    return None


class Allocations(NamedTuple):
    """The addresses and ports of a Service."""

    addresses: frozenset[int]
    ports: frozenset[int]


def allocations_of(service: Document) -> Allocations:
    """Return the allocations of a stored Service.

    Addresses of both families share one number space: IPv6's are larger than all of IPv4's.
    """
    spec = service.get("spec") or {}
    addresses = (int(ip_address(each)) for each in spec.get("clusterIPs") or () if each != NONE)
    ports = [spec.get("healthCheckNodePort")]
    if has_node_ports(spec):  # other types may have stale node ports
        ports += (port.get("nodePort") for port in spec.get("ports") or ())
    return Allocations(frozenset(addresses), frozenset(filter(None, ports)))


@dataclass(slots=True)
class AllocationMap:
    """The Services of allocated addresses and ports, as of their latest versions."""

    addresses: dict[int, Key] = field(default_factory=dict)
    ports: dict[int, Key] = field(default_factory=dict)
    _by_revision: dict[int, Allocations] = field(default_factory=dict)

    def sync(self, latest: Iterable[Record]) -> None:
        """Sync with the latest versions; only changed ones are decoded."""
        versions = {record.revision: record for record in latest}
        for revision in self._by_revision.keys() - versions.keys():
            allocations = self._by_revision.pop(revision)
            for number in allocations.addresses:
                self.addresses.pop(number, None)
            for number in allocations.ports:
                self.ports.pop(number, None)
        for revision in versions.keys() - self._by_revision.keys():
            record = versions[revision]
            allocations = self._by_revision[revision] = allocations_of(record.document())
            self.addresses.update(dict.fromkeys(allocations.addresses, record.key))
            self.ports.update(dict.fromkeys(allocations.ports, record.key))


class Allocation:
    """The admission plugin that allocates for Services on create and update."""

    def __init__(
        self, store: Store, ranges: ServiceRanges, random_source: random.Random | None = None
    ) -> None:
        self._store = store
        self.ranges = ranges
        self._random = random_source or random.Random()  # noqa: S311 - where the search starts is no secret
        self._allocation_map = AllocationMap()

    def allocate(self, service: Document, old: Document | None) -> None:
        """Allocate for a Service with defaults; ``old`` is its previous version.

        Allocations take effect once it is staged.  Raises Invalid for unavailable requested values,
        and InternalError if a range is full.
        """
        spec, before = service["spec"], None if old is None else old["spec"]
        metadata = service["metadata"]
        self._allocation_map.sync(self._store.latest_all(storage(SERVICE)).values())
        allocator = _Allocator(
            Key(metadata.get("namespace", ""), metadata["name"]),
            self.ranges,
            self._allocation_map,
            self._random,
        )
        causes = assign_families(spec, before, self.ranges.families)
        if not causes and not is_external_name(spec) and not is_headless(spec):
            causes = allocator.addresses(spec, before)
        if not causes and has_node_ports(spec):
            causes = allocator.node_ports(spec)
        if not causes and needs_health_check(spec):
            causes = allocator.health_check_port(spec, before)
        if causes:
            raise SERVICE.invalid(metadata["name"], causes)


@dataclass(slots=True)
class _Allocator:
    """The allocation for one Service."""

    key: Key
    ranges: ServiceRanges
    allocation_map: AllocationMap
    random_source: random.Random

    def addresses(self, spec: Document, before: Document | None) -> list[Cause]:
        """Allocate an address for each family that has none yet."""
        addresses_of_service = list(spec.get("clusterIPs") or ())
        existing_count = (
            0 if before is None or is_external_name(before) else len(before.get("clusterIPs", ()))
        )
        for index, family in enumerate(spec["ipFamilies"][existing_count:], existing_count):
            network = self.ranges.network(family)
            if index == len(addresses_of_service):
                addresses_of_service.append(self._new_address(network))
            elif fault := self._address_fault(addresses_of_service[index], network):
                fault = f"failed to allocate IP {addresses_of_service[index]}: {fault}"
                return [invalid("spec.clusterIPs", addresses_of_service, fault)]
        spec["clusterIPs"], spec["clusterIP"] = addresses_of_service, addresses_of_service[0]
        return []

    def _new_address(self, network: Network) -> str:
        numbers = usable(network)
        band = ADDRESS_BAND.size(network.num_addresses)
        number = pick(numbers, self.allocation_map.addresses, band, self.random_source)
        if number is None:
            raise _range_full("failed to allocate a serviceIP")
        return str(network.network_address + (number - int(network.network_address)))

    def _address_fault(self, address: str, network: Network) -> str:
        number = int(ip_address(address))
        if family_of(address) != f"IPv{network.version}" or number not in usable(network):
            return (
                f"the provided IP ({address}) is not in the valid range. "
                f"The range of valid IPs is {network}"
            )
        if self.allocation_map.addresses.get(number, self.key) != self.key:
            return "provided IP is already allocated"
        return ""

    def node_ports(self, spec: Document) -> list[Cause]:
        """Allocate a node port for each port; protocols of one port share a number."""
        ports = spec.get("ports") or []
        shared = {port["port"]: port["nodePort"] for port in reversed(ports) if "nodePort" in port}
        allocated = self._allocated_ports(spec)
        needs_node_ports = spec["type"] == NODE_PORT or at(spec, "allocateLoadBalancerNodePorts")
        for index, port in enumerate(ports):
            if "nodePort" in port:
                if fault := self._port_fault(port["nodePort"]):
                    return [invalid(f"spec.ports[{index}].nodePort", port["nodePort"], fault)]
            elif needs_node_ports:
                if port["port"] not in shared:
                    shared[port["port"]] = self._new_port(
                        "failed to allocate a nodePort", allocated
                    )
                port["nodePort"] = shared[port["port"]]
                allocated.add(port["nodePort"])
        return []

    def health_check_port(self, spec: Document, before: Document | None) -> list[Cause]:
        path, requested = "spec.healthCheckNodePort", spec.get("healthCheckNodePort")
        previous = (
            before.get("healthCheckNodePort") if before and needs_health_check(before) else None
        )
        if previous and requested != previous:
            return [invalid(path, requested or 0, "field is immutable")]
        if requested is None:
            message = "failed to allocate a HealthCheck NodePort 0"
            spec["healthCheckNodePort"] = self._new_port(message, self._allocated_ports(spec))
        elif fault := self._port_fault(requested):
            return [invalid(path, requested, fault)]
        elif any(requested == port.get("nodePort") for port in spec.get("ports") or ()):
            return [invalid(path, requested, "provided port is already allocated")]
        return []

    def _allocated_ports(self, spec: Document) -> set[int]:
        """Return the node ports of all Services, kept ports, and those that this one requests."""
        requested_ports = {
            port["nodePort"] for port in spec.get("ports") or () if "nodePort" in port
        }
        return (self.allocation_map.ports.keys() | requested_ports).union(*self.ranges.kept_ports)

    def _new_port(self, message: str, allocated: Container[int]) -> int:
        numbers = self.ranges.node_ports
        number = pick(numbers, allocated, PORT_BAND.size(len(numbers)), self.random_source)
        if number is None:
            raise _range_full(message)
        return number

    def _port_fault(self, port: int) -> str:
        numbers = self.ranges.node_ports
        if port not in numbers:
            return (
                "provided port is not in the valid range. The range of valid ports is "
                f"{numbers[0]}-{numbers[-1]}"
            )
        if self.allocation_map.ports.get(port, self.key) != self.key:
            return "provided port is already allocated"
        return ""


def _range_full(message: str) -> InternalError:
    fault = f"{message}: range is full"
    return InternalError(
        f"Internal error occurred: {fault}", details=Details(causes=[Cause("", fault, "")])
    )
