"""The names of a cluster, by Kubernetes' DNS specification (schema 1.1.0).  No I/O.

Where the specification leaves a choice, answers are CoreDNS': an endpoint without a hostname is
named by its address (``10-244-0-5``), the endpoints of all Services have names, not only those of
headless ones, and SRV of a Service's own name returns all its ports.
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
    Code,
    Name,
    Record,
    Soa,
    Srv,
    Type,
    lowered,
    parse_name,
)
from corral.node.dns.services import (
    PROTOCOLS,
    Endpoint,
    Port,
    ServiceEntry,
    canonical,
    endpoints_of,
    service_entry,
)

SCHEMA_VERSION = "1.1.0"
SCHEMA_SECONDS = 28800
MAX_TARGETS = 32
"""SRV targets whose addresses are in the additional section."""
SERVICE_NAME = "kubernetes.io/service-name"
"""Label of an EndpointSlice: the name of its Service."""
_REVERSE = {4: ("in-addr", "arpa"), 6: ("ip6", "arpa")}


_RecordData = tuple[Type, str | Name | Srv | Soa, int]
"""The type, data and TTL of a record of the name in question."""


class Zone:
    """The names of a cluster, updated by ``put_…`` and ``drop_…``."""

    def __init__(
        self,
        domain: str,
        *,
        servers: Sequence[str] = (),
        ranges: Sequence[str] = (),
        serial: int = 1,
    ) -> None:
        """Create an empty zone; ``servers`` are the addresses of the cluster's name server.

        ``ranges`` are the CIDRs for whose reverse names the zone is authoritative.
        """
        self._domain = lowered(parse_name(domain))
        self._servers = servers
        self._ranges = [ip_network(each) for each in ranges]
        self._serial = serial
        self._namespaces: set[str] = set()
        self._services: dict[Key, ServiceEntry] = {}
        self._slices: dict[Key, dict[str, Sequence[Endpoint]]] = {}
        self._slice_service: dict[Key, Key] = {}
        self._cluster_addresses: dict[str, Key] = {}
        self._slices_by_address: dict[str, set[Key]] = {}
        """By address: the slices in which an endpoint with a hostname has it."""

    def put_namespace(self, name: str) -> None:
        self._namespaces.add(name)

    def drop_namespace(self, name: str) -> None:
        self._namespaces.discard(name)

    def put_service(self, key: Key, service: Service) -> None:
        self.drop_service(key)
        entry = self._services[key] = service_entry(service)
        for address in entry.addresses:
            self._cluster_addresses[address] = key

    def drop_service(self, key: Key) -> None:
        entry = self._services.pop(key, None)
        for address in entry.addresses if entry else ():
            if self._cluster_addresses.get(address) == key:
                del self._cluster_addresses[address]

    def put_slice(self, key: Key, slice_: EndpointSlice) -> None:
        self.drop_slice(key)
        labels = (slice_.metadata and slice_.metadata.labels) or {}
        service = labels.get(SERVICE_NAME)
        if service is None or slice_.addressType == "FQDN":
            return
        owner = self._slice_service[key] = Key(key.namespace, service)
        endpoints = self._slices.setdefault(owner, {})[key.name] = tuple(endpoints_of(slice_))
        for endpoint in endpoints:
            if endpoint.has_hostname:
                self._slices_by_address.setdefault(endpoint.address, set()).add(key)

    def drop_slice(self, key: Key) -> None:
        owner = self._slice_service.pop(key, None)
        if owner is None:
            return
        for endpoint in self._slices[owner].pop(key.name):
            slices = self._slices_by_address.get(endpoint.address)
            if slices is not None:
                slices.discard(key)
                if not slices:
                    del self._slices_by_address[endpoint.address]
        if not self._slices[owner]:
            del self._slices[owner]

    def answer(self, name: Name, qtype: int) -> Answer | None:
        """Return the answer; None for a name outside of the zone."""
        lowered_name = lowered(name)
        size = len(self._domain)
        if lowered_name[-size:] == self._domain:
            return self._answer_in_domain(name, lowered_name[:-size], qtype)
        if lowered_name[-2:] in _REVERSE.values():
            return self._answer_reverse(name, lowered_name, qtype)
        return None

    # ------------------------------------------------------------------ names

    def _answer_in_domain(self, name: Name, lowered_name: Name, qtype: int) -> Answer:
        found = self._records(lowered_name, qtype)
        if found is None:
            return self._negative_answer(self._domain, Code.NXDOMAIN)
        records = [
            Record(name, type_, data, ttl)
            for type_, data, ttl in found
            if type_ == qtype or type_ is Type.CNAME
        ]
        if not records:
            return self._negative_answer(self._domain, Code.NOERROR)
        return Answer(records=records, additional=tuple(self._target_addresses(records)))

    def _records(self, lowered_name: Name, qtype: int) -> Sequence[_RecordData] | None:
        """Return the records of a relative name, at least those of the type; None: no such name."""
        match lowered_name:
            case (*within, service, namespace, "svc"):
                return self._records_below_service(within, Key(namespace, service), qtype)
            case (address_label, namespace, "pod"):
                return self._pod_records(address_label, namespace)
            case (namespace, "svc" | "pod"):
                return [] if namespace in self._namespaces else None
        return self._static_records().get(lowered_name)

    def _static_records(self) -> dict[Name, list[_RecordData]]:
        """Return the names that always exist, some of them only as parents of others."""
        server = ("ns", "dns", *self._domain)
        return {
            (): [(Type.SOA, self._soa(), TTL_SECONDS), (Type.NS, server, TTL_SECONDS)],
            ("dns-version",): [(Type.TXT, SCHEMA_VERSION, SCHEMA_SECONDS)],
            ("ns", "dns"): _addresses(self._servers),
            ("dns",): [],
            ("svc",): [],
            ("pod",): [],
        }

    def _pod_records(self, address_label: str, namespace: str) -> Sequence[_RecordData] | None:
        """Return the address in ``10-244-0-5``, whether or not a pod has it (deprecated)."""
        parts = address_label.split("-")
        text = ".".join(parts) if len(parts) == 4 and all(parts) else ":".join(parts)
        address = canonical(text) if namespace in self._namespaces else ""
        return _addresses([address]) if address else None

    def _records_below_service(
        self, within: Sequence[str], key: Key, qtype: int
    ) -> Sequence[_RecordData] | None:
        entry = self._services.get(key)
        if entry is None:
            return None
        match within:
            case []:
                return self._service_records(key, entry, qtype)
            case [protocol] if protocol in PROTOCOLS.values():
                has_named_port = any(
                    port.name and port.protocol == protocol for port in entry.ports
                )
                return [] if has_named_port and not entry.external_name else None
            case [hostname]:
                endpoints = [
                    each for each in self._endpoints(key, entry) if each.hostname == hostname
                ]
                return (
                    _addresses(dict.fromkeys(each.address for each in endpoints))
                    if endpoints
                    else None
                )
            case [port, protocol] if port.startswith("_"):
                found = self._srv_records(key, entry, port[1:], protocol)
                return found or None
        return None

    def _service_records(
        self, key: Key, entry: ServiceEntry, qtype: int
    ) -> Sequence[_RecordData] | None:
        """Return a Service's own records; a headless one without ready endpoints has none."""
        if entry.external_name:
            return [(Type.CNAME, entry.external_name, TTL_SECONDS)]
        if qtype == Type.SRV:
            return self._srv_records(key, entry) or (None if entry.headless else [])
        if not entry.headless:
            return _addresses(entry.addresses)
        addresses = dict.fromkeys(endpoint.address for endpoint in self._endpoints(key, entry))
        return _addresses(addresses) if addresses else None

    def _srv_records(
        self, key: Key, entry: ServiceEntry, name: str | None = None, protocol: str = ""
    ) -> list[_RecordData]:
        """Return the SRV records of a named port, or of all ports."""

        def is_requested(port: Port) -> bool:
            matches = (port.name, port.protocol) == (name, protocol)
            return name is None or (matches and bool(port.name))

        service_name = (key.name, key.namespace, "svc", *self._domain)
        if entry.external_name:
            return []
        if not entry.headless:
            found = [Srv(port.number, service_name) for port in entry.ports if is_requested(port)]
        else:
            found = [
                Srv(port.number, (endpoint.hostname, *service_name))
                for endpoint in self._endpoints(key, entry)
                for port in endpoint.ports
                if is_requested(port)
            ]
        return [(Type.SRV, server, TTL_SECONDS) for server in dict.fromkeys(found)]

    def _endpoints(self, key: Key, entry: ServiceEntry) -> Iterator[Endpoint]:
        for endpoint in chain.from_iterable(self._slices.get(key, {}).values()):
            if endpoint.is_ready or entry.publish_not_ready:
                yield endpoint

    def _target_addresses(self, records: Sequence[Record]) -> Iterator[Record]:
        """Return the addresses of SRV targets, to save clients further queries."""
        targets = (each.data.target for each in records if isinstance(each.data, Srv))
        for target in islice(dict.fromkeys(targets), MAX_TARGETS):
            relative_name = target[: -len(self._domain)]
            for type_, data, ttl in self._records(relative_name, Type.A) or ():
                yield Record(target, type_, data, ttl)

    # -------------------------------------------------------------- addresses

    def _answer_reverse(self, name: Name, lowered_name: Name, qtype: int) -> Answer | None:
        address = _reverse_address(lowered_name)
        if address is None:
            return None
        found = [Record(name, Type.PTR, data) for data in self._ptr_names(address)]
        if not found:
            parsed = ip_address(address)
            is_in_ranges = any(parsed in each for each in self._ranges)
            return self._negative_answer(lowered_name[-2:], Code.NXDOMAIN) if is_in_ranges else None
        return (
            Answer(records=found)
            if qtype == Type.PTR
            else self._negative_answer(lowered_name[-2:], Code.NOERROR)
        )

    def _ptr_names(self, address: str) -> Sequence[Name]:
        """Return the names of an address: a Service's, else those of endpoints with a hostname."""
        service = self._cluster_addresses.get(address)
        if service is not None:
            return [(service.name, service.namespace, "svc", *self._domain)]
        owners = sorted(
            {self._slice_service[key] for key in self._slices_by_address.get(address, ())}
        )
        return [
            (endpoint.hostname, owner.name, owner.namespace, "svc", *self._domain)
            for owner in owners
            if (entry := self._services.get(owner)) is not None
            for endpoint in self._endpoints(owner, entry)
            if endpoint.has_hostname and endpoint.address == address
        ]

    def _soa(self) -> Soa:
        return Soa(("ns", "dns", *self._domain), ("hostmaster", *self._domain), self._serial)

    def _negative_answer(self, zone: Name, code: Code) -> Answer:
        return Answer(code=code, authority=[Record(zone, Type.SOA, self._soa())])


def _addresses(addresses: Iterable[str]) -> list[_RecordData]:
    return [
        (Type.AAAA if ":" in address else Type.A, address, TTL_SECONDS) for address in addresses
    ]


def _reverse_address(reverse: Name) -> str | None:
    """Return the address of a complete reverse name (RFC 1035 3.5, RFC 3596 2.5)."""
    digits = reverse[-3::-1]
    if reverse[-2:] == _REVERSE[4] and len(digits) == 4:
        return canonical(".".join(digits)) or None
    if reverse[-2:] == _REVERSE[6] and len(digits) == 32 and all(len(each) == 1 for each in digits):
        groups = ("".join(digits[index : index + 4]) for index in range(0, 32, 4))
        return canonical(":".join(groups)) or None
    return None
