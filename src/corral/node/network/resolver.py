"""The DNS configuration of guests: name servers, search domains and options.

A kubelet writes it to its pods' resolv.conf, and KubeVirt passes that to the guest by DHCP; here it
goes straight into the lease.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from corral.api.kinds.vmi.vmi import Spec

RESOLV_CONF = Path("/etc/resolv.conf")
MAX_SERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
"""A kubelet's limits for a pod; that of servers is for each IP version."""
CLUSTER_OPTIONS = ("ndots:5",)


@dataclass(frozen=True, slots=True)
class Resolver:
    """The contents of a resolv.conf(5)."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


NO_RESOLVER = Resolver()


def parse(text: str) -> Resolver:
    """Parse a resolv.conf(5); of ``search`` and ``domain`` the last line counts."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        match line.partition("#")[0].partition(";")[0].split():
            case ["nameserver", address, *_]:
                servers.append(address)
            case ["search" | "domain", *names]:
                searches = names
            case ["options", *words]:
                options += words
    return Resolver(tuple(servers), tuple(searches), tuple(options))


def read_host_resolver(path: Path = RESOLV_CONF) -> Resolver:
    """Return the host's resolv.conf; empty if there is none."""
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return NO_RESOLVER


def resolve_dns(
    spec: Spec, namespace: str, *, cluster: Sequence[str], domain: str, host: Resolver
) -> Resolver:
    """Resolve a VMI's ``dnsPolicy``, ``dnsConfig`` and ``subdomain`` to a DNS configuration.

    ``cluster`` are the addresses of the cluster's DNS, ``domain`` is its domain.  A guest cannot
    reach a server on the host's loopback: the cluster's DNS replaces it, which forwards to it.
    """
    servers, searches, options = _policy(spec, namespace, cluster, domain, host)
    config = spec.dns_config
    if config is not None:
        servers += config.nameservers or []
        searches += config.searches or []
        options += [
            f"{one.name}:{one.value}" if one.value else one.name or ""
            for one in config.options or ()
        ]
    if spec.subdomain and (service := _service_domain(searches)):
        searches.insert(0, f"{spec.subdomain}.{service}")
    return Resolver(
        tuple(_limit_servers(_unique(servers))),
        tuple(_limit_searches(_unique(one.rstrip(".").lower() for one in searches))),
        tuple({one.partition(":")[0]: one for one in options if one}.values()),
    )


def _policy(
    spec: Spec, namespace: str, cluster: Sequence[str], domain: str, host: Resolver
) -> tuple[list[str], list[str], list[str]]:
    if spec.dns_policy == "None":
        return [], [], []
    if spec.dns_policy == "Default" or not cluster:  # as a kubelet without --cluster-dns
        servers = [address for one in host.servers for address in _reachable(one, cluster)]
        return servers, list(host.searches), list(host.options)
    services = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
    return list(cluster), [*services, *host.searches], list(CLUSTER_OPTIONS)


def _limit_servers(servers: Iterable[str]) -> Iterator[str]:
    """Return the first servers of each IP version, as many as a resolver uses."""
    count = Counter[int]()
    for text in servers:
        with suppress(ValueError):
            address = ip_address(text)
            count[address.version] += 1
            if count[address.version] <= MAX_SERVERS:
                yield str(address)


def _reachable(server: str, cluster: Sequence[str]) -> Sequence[str]:
    """Return the servers for a guest in place of one of the host's."""
    try:
        address = ip_address(server)
    except ValueError:
        return ()
    return cluster if address.is_loopback or address.is_link_local else (str(address),)


def _service_domain(searches: Sequence[str]) -> str:
    """Return the longest domain of Services: that of the VMI's namespace (KubeVirt's rule)."""
    return max((one for one in searches if ".svc." in f"{one}."), key=len, default="")


def _unique(words: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(word for word in words if word)


def _limit_searches(searches: Iterable[str]) -> Iterable[str]:
    """Return the first search domains, as many as a resolver uses."""
    length = 0
    for count, search in enumerate(searches):
        length += len(search) + 1
        if count == MAX_SEARCHES or length > MAX_SEARCH_CHARACTERS + 1:
            return
        yield search
