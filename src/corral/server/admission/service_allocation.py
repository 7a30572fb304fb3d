"""What services are given: addresses of the service range, and ports on nodes.

What is taken is what the newest versions of all services say, those on their way to the disk among
them.  Nothing else is kept, so nothing can be lost or given twice: a service that is refused, only
tried, or not written after all holds nothing, and after a restart everything is as it was.
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
from corral.server.admission.ip_families import settle
from corral.server.request.call import storage
from corral.store import Record, Store

Network = IPv4Network | IPv6Network

MOST_ADDRESSES: Final = 2**62
"""Of larger ranges the first so many are given; ``range`` counts no further."""


class Band(NamedTuple):
    """How much of a range is left to those who ask for a number of their own choice (KEP-3070).

    One of ``share`` numbers, but no less than 16 and no more than ``most``; nothing of ranges that
    have no more than 16.
    """

    share: int
    most: int

    def size(self, numbers: int) -> int:
        return 0 if numbers <= 16 else max(16, min(self.most, numbers // self.share))


ADDRESS_BAND: Final = Band(share=16, most=256)
PORT_BAND: Final = Band(share=32, most=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRanges:
    """Where services' addresses come from, one range a family, and their ports on nodes.

    The first family is the one of services that do not ask for any.  ``pods`` and ``name_servers``
    have addresses that no service takes; ``kept_ports`` of the host are given to who asks for them
    only (``exposure``).  Raises ValueError for two ranges of the same family, and for none.
    """

    networks: tuple[Network, ...] = (IPv4Network("10.96.0.0/12"),)
    node_ports: range = range(30000, 32768)
    pods: tuple[Network, ...] = ()
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
    """The numbers of addresses that services may have: not the network's, nor IPv4's broadcast."""
    first = int(network.network_address)
    size = min(network.num_addresses, MOST_ADDRESSES)
    return range(first + 1, first + size - (1 if network.version == 4 else 0))


def pick(numbers: range, taken: Container[int], band: int, dice: random.Random) -> int | None:
    """A free number, anyone of them; of the first ``band`` only where no other is left."""
    for part in (numbers[band:], numbers[:band]):
        if part:
            start = dice.randrange(len(part))
            for number in chain(part[start:], part[:start]):
                if number not in taken:
                    return number
    return None


class Claims(NamedTuple):
    """What a service holds."""

    addresses: frozenset[int]
    ports: frozenset[int]


def claims(service: Document) -> Claims:
    """What a service that is complete holds.

    Addresses of both families are numbers of one sort here: those of IPv6 are beyond all of IPv4.
    """
    spec = service.get("spec") or {}
    addresses = (int(ip_address(each)) for each in spec.get("clusterIPs") or () if each != NONE)
    ports = [spec.get("healthCheckNodePort")]
    if has_node_ports(spec):  # others may speak of ports, and do not get them
        ports += (port.get("nodePort") for port in spec.get("ports") or ())
    return Claims(frozenset(addresses), frozenset(filter(None, ports)))


@dataclass(slots=True)
class Holders:
    """Who holds what, as of the newest versions of services."""

    addresses: dict[int, Key] = field(default_factory=dict)
    ports: dict[int, Key] = field(default_factory=dict)
    _seen: dict[int, Claims] = field(default_factory=dict)

    def follow(self, newest: Iterable[Record]) -> None:
        """Take in what has changed; versions that are known are not looked into again."""
        versions = {record.revision: record for record in newest}
        for revision in self._seen.keys() - versions.keys():
            held = self._seen.pop(revision)
            for number in held.addresses:
                self.addresses.pop(number, None)
            for number in held.ports:
                self.ports.pop(number, None)
        for revision in versions.keys() - self._seen.keys():
            record = versions[revision]
            held = self._seen[revision] = claims(record.document())
            self.addresses.update(dict.fromkeys(held.addresses, record.key))
            self.ports.update(dict.fromkeys(held.ports, record.key))


class Allocation:
    """Gives services what they need when they are created and changed."""

    def __init__(
        self, store: Store, ranges: ServiceRanges, dice: random.Random | None = None
    ) -> None:
        self._store = store
        self.ranges = ranges
        self._dice = dice or random.Random()  # noqa: S311 - where to look first is no secret
        self._holders = Holders()

    def allocate(self, service: Document, old: Document | None) -> None:
        """Complete a service that has its defaults; ``old`` is what it was before, if it was.

        It holds what it is given once it is staged.  Raises Invalid for what cannot be had, and
        InternalError when nothing is left.
        """
        spec, before = service["spec"], None if old is None else old["spec"]
        metadata = service["metadata"]
        self._holders.follow(self._store.latest_all(storage(SERVICE)).values())
        gift = _Gift(
            Key(metadata.get("namespace", ""), metadata["name"]),
            self.ranges,
            self._holders,
            self._dice,
        )
        causes = settle(spec, before, self.ranges.families)
        if not causes and not is_external_name(spec) and not is_headless(spec):
            causes = gift.addresses(spec, before)
        if not causes and has_node_ports(spec):
            causes = gift.node_ports(spec)
        if not causes and needs_health_check(spec):
            causes = gift.health_check_port(spec, before)
        if causes:
            raise SERVICE.invalid(metadata["name"], causes)


@dataclass(slots=True)
class _Gift:
    """What one service is given."""

    key: Key
    ranges: ServiceRanges
    holders: Holders
    dice: random.Random

    def addresses(self, spec: Document, before: Document | None) -> list[Cause]:
        """An address of each family, but those that the service has."""
        given = list(spec.get("clusterIPs") or ())
        has = 0 if before is None or is_external_name(before) else len(before.get("clusterIPs", ()))
        for index, family in enumerate(spec["ipFamilies"][has:], has):
            network = self.ranges.network(family)
            if index == len(given):
                given.append(self._new_address(network))
            elif fault := self._address_fault(given[index], network):
                fault = f"failed to allocate IP {given[index]}: {fault}"
                return [invalid("spec.clusterIPs", given, fault)]
        spec["clusterIPs"], spec["clusterIP"] = given, given[0]
        return []

    def _new_address(self, network: Network) -> str:
        numbers = usable(network)
        band = ADDRESS_BAND.size(network.num_addresses)
        number = pick(numbers, self.holders.addresses, band, self.dice)
        if number is None:
            raise _full("failed to allocate a serviceIP")
        return str(network.network_address + (number - int(network.network_address)))

    def _address_fault(self, address: str, network: Network) -> str:
        number = int(ip_address(address))
        if family_of(address) != f"IPv{network.version}" or number not in usable(network):
            return (
                f"the provided IP ({address}) is not in the valid range. "
                f"The range of valid IPs is {network}"
            )
        if self.holders.addresses.get(number, self.key) != self.key:
            return "provided IP is already allocated"
        return ""

    def node_ports(self, spec: Document) -> list[Cause]:
        """A port on nodes for each port; one number does for a port of several protocols."""
        ports = spec.get("ports") or []
        shared = {port["port"]: port["nodePort"] for port in reversed(ports) if "nodePort" in port}
        taken = self._taken_ports(spec)
        wanted = spec["type"] == NODE_PORT or at(spec, "allocateLoadBalancerNodePorts")
        for index, port in enumerate(ports):
            if "nodePort" in port:
                if fault := self._port_fault(port["nodePort"]):
                    return [invalid(f"spec.ports[{index}].nodePort", port["nodePort"], fault)]
            elif wanted:
                if port["port"] not in shared:
                    shared[port["port"]] = self._new_port("failed to allocate a nodePort", taken)
                port["nodePort"] = shared[port["port"]]
                taken.add(port["nodePort"])
        return []

    def health_check_port(self, spec: Document, before: Document | None) -> list[Cause]:
        path, asked = "spec.healthCheckNodePort", spec.get("healthCheckNodePort")
        had = before.get("healthCheckNodePort") if before and needs_health_check(before) else None
        if had and asked != had:
            return [invalid(path, asked or 0, "field is immutable")]
        if asked is None:
            failed = "failed to allocate a HealthCheck NodePort 0"
            spec["healthCheckNodePort"] = self._new_port(failed, self._taken_ports(spec))
        elif fault := self._port_fault(asked):
            return [invalid(path, asked, fault)]
        elif any(asked == port.get("nodePort") for port in spec.get("ports") or ()):
            return [invalid(path, asked, "provided port is already allocated")]
        return []

    def _taken_ports(self, spec: Document) -> set[int]:
        """The ports on nodes that services hold, that are kept, and those that this one names."""
        named = {port["nodePort"] for port in spec.get("ports") or () if "nodePort" in port}
        return (self.holders.ports.keys() | named).union(*self.ranges.kept_ports)

    def _new_port(self, failed: str, taken: Container[int]) -> int:
        numbers = self.ranges.node_ports
        number = pick(numbers, taken, PORT_BAND.size(len(numbers)), self.dice)
        if number is None:
            raise _full(failed)
        return number

    def _port_fault(self, port: int) -> str:
        numbers = self.ranges.node_ports
        if port not in numbers:
            return (
                "provided port is not in the valid range. The range of valid ports is "
                f"{numbers[0]}-{numbers[-1]}"
            )
        if self.holders.ports.get(port, self.key) != self.key:
            return "provided port is already allocated"
        return ""


def _full(failed: str) -> InternalError:
    fault = f"{failed}: range is full"
    return InternalError(
        f"Internal error occurred: {fault}", details=Details(causes=[Cause("", fault, "")])
    )
