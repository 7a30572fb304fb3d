"""The result of ADD: the addresses and the DNS of a pod.  No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network

import msgspec

from corral.api.object import Document
from corral.node.network.netlink import Address, Interface, NetworkError
from corral.node.network.resolver import Resolver


class _Ip(msgspec.Struct):
    address: str
    gateway: str = ""


class _Route(msgspec.Struct):
    dst: str
    gw: str = ""


class _Dns(msgspec.Struct):
    nameservers: list[str] = []
    search: list[str] = []
    options: list[str] = []


class _Result(msgspec.Struct):
    ips: list[_Ip] | None = None
    routes: list[_Route] | None = None
    dns: _Dns = msgspec.field(default_factory=_Dns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddresses:
    """The addresses of a pod, one for each IP family, and its gateways and name servers."""

    interfaces: Sequence[Interface]
    gateways: Sequence[Address]
    resolver: Resolver

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses alone, for ``status.podIPs``."""
        return tuple(each.ip for each in self.interfaces)


def addresses_of(result: Document) -> PodAddresses:
    """Return the addresses of a result; of several in one IP family the first, as a kubelet does.

    Raises NetworkError for a result that is no such.
    """
    try:
        found = msgspec.convert(result, _Result)
        ips = [(ip_interface(each.address), each.gateway) for each in found.ips or ()]
        by_family = {each.version: (each, gateway) for each, gateway in reversed(ips)}
        gateways = [ip_address(gateway) for _, gateway in by_family.values() if gateway]
        gateways += [
            ip_address(each.gw)
            for each in found.routes or ()
            if each.gw and ip_network(each.dst).prefixlen == 0
        ]
    except (msgspec.ValidationError, ValueError) as error:
        raise NetworkError(f"the result of the CNI plugins is invalid: {error}") from error
    if not by_family:
        raise NetworkError("the CNI plugins have given the pod no address (ips)")
    return PodAddresses(
        interfaces=[each for each, _ in ips if by_family[each.version][0] is each],
        gateways=gateways,
        resolver=Resolver(found.dns.nameservers, found.dns.search, found.dns.options),
    )
