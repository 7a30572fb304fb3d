"""The names of a cluster, as Kubernetes' DNS specification (schema 1.1.0) lays them out.  Pure.

Where the specification leaves room, names are as CoreDNS answers them: a member without a hostname
is called by its address (``10-244-0-5``), the members of every Service have names, not only those
of headless ones, and SRV of a Service's own name tells all its ports.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from itertools import chain, islice

from lightkube.models.core_v1 import Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.api.object import Key
from corral.node.dns.records import (
    TTL_SECONDS,
    Answer,
    Authority,
    Code,
    Name,
    Record,
    Server,
    Type,
    lowered,
    name_of,
)
from corral.node.dns.services import PROTOCOLS, Entry, Member, Port, canonical, entry_of, members_of

SCHEMA_VERSION = "1.1.0"
SCHEMA_SECONDS = 28800
MOST_TARGETS = 32
"""Targets of SRV whose addresses are told with them: more would hardly fit into a packet."""
SERVICE_NAME = "kubernetes.io/service-name"
"""Label of an EndpointSlice: whose endpoints these are."""
_REVERSE = {4: ("in-addr", "arpa"), 6: ("ip6", "arpa")}


_Found = tuple[Type, str | Name | Server | Authority, int]
"""A record of the name that is looked at: type, data, seconds."""


class Zone:
    """The names of one cluster; kept by ``put_…`` and ``drop_…``, asked by ``answer``."""

    def __init__(
        self,
        domain: str,
        *,
        servers: Sequence[str] = (),
        ranges: Sequence[str] = (),
        serial: int = 1,
    ) -> None:
        """``servers`` are the addresses of the cluster's name server.

        ``ranges`` are the CIDRs whose addresses have names here or none.
        """
        self._domain = lowered(name_of(domain))
        self._servers = servers
        self._ranges = [ip_network(each) for each in ranges]
        self._serial = serial
        self._namespaces: set[str] = set()
        self._services: dict[Key, Entry] = {}
        self._slices: dict[Key, dict[str, Sequence[Member]]] = {}
        self._slice_service: dict[Key, Key] = {}
        self._cluster_addresses: dict[str, Key] = {}
        self._named: dict[str, set[Key]] = {}
        """By address: the slices in which a pod has it that asked for a hostname."""

    def put_namespace(self, name: str) -> None:
        self._namespaces.add(name)

    def drop_namespace(self, name: str) -> None:
        self._namespaces.discard(name)

    def put_service(self, key: Key, service: Service) -> None:
        self.drop_service(key)
        entry = self._services[key] = entry_of(service)
        for address in entry.addresses:
            self._cluster_addresses[address] = key

    def drop_service(self, key: Key) -> None:
        entry = self._services.pop(key, None)
        for address in entry.addresses if entry else ():
            if self._cluster_addresses.get(address) == key:
                del self._cluster_addresses[address]

    def put_slice(self, key: Key, endpoints: EndpointSlice) -> None:
        self.drop_slice(key)
        labels = (endpoints.metadata and endpoints.metadata.labels) or {}
        service = labels.get(SERVICE_NAME)
        if service is None or endpoints.addressType == "FQDN":
            return
        owner = self._slice_service[key] = Key(key.namespace, service)
        members = self._slices.setdefault(owner, {})[key.name] = tuple(members_of(endpoints))
        for member in members:
            if member.is_named:
                self._named.setdefault(member.address, set()).add(key)

    def drop_slice(self, key: Key) -> None:
        owner = self._slice_service.pop(key, None)
        if owner is None:
            return
        for member in self._slices[owner].pop(key.name):
            slices = self._named.get(member.address)
            if slices is not None:
                slices.discard(key)
                if not slices:
                    del self._named[member.address]
        if not self._slices[owner]:
            del self._slices[owner]

    def answer(self, name: Name, wanted: int) -> Answer | None:
        """What is known of a name; None where the name is none of this cluster's business."""
        asked = lowered(name)
        size = len(self._domain)
        if asked[-size:] == self._domain:
            return self._inside(name, asked[:-size], wanted)
        if asked[-2:] in _REVERSE.values():
            return self._reverse(name, asked, wanted)
        return None

    # ------------------------------------------------------------------ names

    def _inside(self, name: Name, asked: Name, wanted: int) -> Answer:
        found = self._records(asked, wanted)
        if found is None:
            return self._absent(self._domain, Code.NO_SUCH_NAME)
        records = [
            Record(name, kind, data, ttl)
            for kind, data, ttl in found
            if kind == wanted or kind is Type.CNAME
        ]
        if not records:
            return self._absent(self._domain, Code.OK)
        return Answer(records=records, additional=tuple(self._targets(records)))

    def _records(self, asked: Name, wanted: int) -> Sequence[_Found] | None:
        """What a name inside the domain has, at least of the wanted type; None: no such name."""
        match asked:
            case (*within, service, namespace, "svc"):
                return self._service(within, Key(namespace, service), wanted)
            case (dashed, namespace, "pod"):
                return self._pod(dashed, namespace)
            case (namespace, "svc" | "pod"):
                return [] if namespace in self._namespaces else None
        return self._fixed().get(asked)

    def _fixed(self) -> dict[Name, list[_Found]]:
        """Names that are always there; some only because there are others below them."""
        server = ("ns", "dns", *self._domain)
        return {
            (): [(Type.SOA, self._authority(), TTL_SECONDS), (Type.NS, server, TTL_SECONDS)],
            ("dns-version",): [(Type.TXT, SCHEMA_VERSION, SCHEMA_SECONDS)],
            ("ns", "dns"): _addresses(self._servers),
            ("dns",): [],
            ("svc",): [],
            ("pod",): [],
        }

    def _pod(self, dashed: str, namespace: str) -> Sequence[_Found] | None:
        """``10-244-0-5``: the address in the name, whether or not a pod has it (deprecated)."""
        parts = dashed.split("-")
        text = ".".join(parts) if len(parts) == 4 and all(parts) else ":".join(parts)
        address = canonical(text) if namespace in self._namespaces else ""
        return _addresses([address]) if address else None

    def _service(self, within: Sequence[str], key: Key, wanted: int) -> Sequence[_Found] | None:
        entry = self._services.get(key)
        if entry is None:
            return None
        match within:
            case []:
                return self._whole(key, entry, wanted)
            case [protocol] if protocol in PROTOCOLS.values():
                named = any(port.name and port.protocol == protocol for port in entry.ports)
                return [] if named and not entry.external else None
            case [hostname]:
                members = [one for one in self._members(key, entry) if one.hostname == hostname]
                return (
                    _addresses(dict.fromkeys(one.address for one in members)) if members else None
                )
            case [port, protocol] if port.startswith("_"):
                found = self._servers_of(key, entry, port[1:], protocol)
                return found or None
        return None

    def _whole(self, key: Key, entry: Entry, wanted: int) -> Sequence[_Found] | None:
        """A Service's own name; without ready members a headless one has none."""
        if entry.external:
            return [(Type.CNAME, entry.external, TTL_SECONDS)]
        if wanted == Type.SRV:
            return self._servers_of(key, entry) or (None if entry.headless else [])
        if not entry.headless:
            return _addresses(entry.addresses)
        addresses = dict.fromkeys(member.address for member in self._members(key, entry))
        return _addresses(addresses) if addresses else None

    def _servers_of(
        self, key: Key, entry: Entry, name: str | None = None, protocol: str = ""
    ) -> list[_Found]:
        """SRV records of the port of a name, or of all ports."""

        def is_wanted(port: Port) -> bool:
            asked = (port.name, port.protocol) == (name, protocol)
            return name is None or (asked and bool(port.name))

        whole = (key.name, key.namespace, "svc", *self._domain)
        if entry.external:
            return []
        if not entry.headless:
            found = [Server(port.number, whole) for port in entry.ports if is_wanted(port)]
        else:
            found = [
                Server(port.number, (member.hostname, *whole))
                for member in self._members(key, entry)
                for port in member.ports
                if is_wanted(port)
            ]
        return [(Type.SRV, server, TTL_SECONDS) for server in dict.fromkeys(found)]

    def _members(self, key: Key, entry: Entry) -> Iterator[Member]:
        for member in chain.from_iterable(self._slices.get(key, {}).values()):
            if member.is_ready or entry.all_members:
                yield member

    def _targets(self, records: Sequence[Record]) -> Iterator[Record]:
        """Addresses of what SRV records point at, so that nobody has to ask for them."""
        targets = (one.data.target for one in records if isinstance(one.data, Server))
        for target in islice(dict.fromkeys(targets), MOST_TARGETS):
            inner = target[: -len(self._domain)]
            for kind, data, ttl in self._records(inner, Type.A) or ():
                yield Record(target, kind, data, ttl)

    # -------------------------------------------------------------- addresses

    def _reverse(self, name: Name, asked: Name, wanted: int) -> Answer | None:
        address = _address_of(asked)
        if address is None:
            return None
        found = [Record(name, Type.PTR, data) for data in self._names(address)]
        if not found:
            inside = ip_address(address)
            is_ours = any(inside in each for each in self._ranges)
            return self._absent(asked[-2:], Code.NO_SUCH_NAME) if is_ours else None
        return Answer(records=found) if wanted == Type.PTR else self._absent(asked[-2:], Code.OK)

    def _names(self, address: str) -> Sequence[Name]:
        """What an address is called: as a Service's, else as that of pods with a hostname."""
        service = self._cluster_addresses.get(address)
        if service is not None:
            return [(service.name, service.namespace, "svc", *self._domain)]
        owners = sorted({self._slice_service[key] for key in self._named.get(address, ())})
        return [
            (member.hostname, owner.name, owner.namespace, "svc", *self._domain)
            for owner in owners
            if (entry := self._services.get(owner)) is not None
            for member in self._members(owner, entry)
            if member.is_named and member.address == address
        ]

    def _authority(self) -> Authority:
        return Authority(("ns", "dns", *self._domain), ("hostmaster", *self._domain), self._serial)

    def _absent(self, zone: Name, code: Code) -> Answer:
        return Answer(code=code, authority=[Record(zone, Type.SOA, self._authority())])


def _addresses(addresses: Iterable[str]) -> list[_Found]:
    return [
        (Type.AAAA if ":" in address else Type.A, address, TTL_SECONDS) for address in addresses
    ]


def _address_of(reverse: Name) -> str | None:
    """The address that a whole reverse name spells (RFC 1035 3.5, RFC 3596 2.5)."""
    digits = reverse[-3::-1]
    if reverse[-2:] == _REVERSE[4] and len(digits) == 4:
        return canonical(".".join(digits)) or None
    if reverse[-2:] == _REVERSE[6] and len(digits) == 32 and all(len(one) == 1 for one in digits):
        groups = ("".join(digits[at : at + 4]) for at in range(0, 32, 4))
        return canonical(":".join(groups)) or None
    return None
