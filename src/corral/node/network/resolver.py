"""Which name servers a machine is told to ask, and where names are looked for.

A kubelet writes it into its pods' resolv.conf, and KubeVirt hands that to the guest by DHCP; here
it is made for the lease at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from corral.api.kinds.vmi.vmi import Spec

RESOLV_CONF = Path("/etc/resolv.conf")
MOST_SERVERS = 3
MOST_SEARCHES = 32
LONGEST_SEARCHES = 2048
"""What a kubelet lets a pod have; of servers, so many of each IP version."""
CLUSTER_OPTIONS = ("ndots:5",)


@dataclass(frozen=True, slots=True)
class Resolver:
    """The contents of a resolv.conf(5)."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


NO_RESOLVER = Resolver()


def parse(text: str) -> Resolver:
    """Read a resolv.conf(5); of ``search`` and ``domain`` the last line counts."""
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


def of_host(path: Path = RESOLV_CONF) -> Resolver:
    """How the host looks names up; not at all where nothing says how."""
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return NO_RESOLVER


def resolver(
    spec: Spec, namespace: str, *, cluster: Sequence[str], domain: str, host: Resolver
) -> Resolver:
    """What a machine's ``dnsPolicy``, ``dnsConfig`` and ``subdomain`` come to.

    ``cluster`` are the addresses of the cluster's DNS, ``domain`` is its domain.  A server on the
    host's loopback is none for a guest: the cluster's takes its place, which asks the host's.
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
        tuple(_asked(_unique(servers))),
        tuple(_fitting(_unique(one.rstrip(".").lower() for one in searches))),
        tuple({one.partition(":")[0]: one for one in options if one}.values()),
    )


def _policy(
    spec: Spec, namespace: str, cluster: Sequence[str], domain: str, host: Resolver
) -> tuple[list[str], list[str], list[str]]:
    if spec.dns_policy == "None":
        return [], [], []
    if spec.dns_policy == "Default":
        servers = [address for one in host.servers for address in _reachable(one, cluster)]
        return servers, list(host.searches), list(host.options)
    services = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
    return list(cluster), [*services, *host.searches], list(CLUSTER_OPTIONS)


def _asked(servers: Iterable[str]) -> Iterator[str]:
    """As many addresses of each IP version as a resolver asks."""
    told = Counter[int]()
    for text in servers:
        with suppress(ValueError):
            address = ip_address(text)
            told[address.version] += 1
            if told[address.version] <= MOST_SERVERS:
                yield str(address)


def _reachable(server: str, cluster: Sequence[str]) -> Sequence[str]:
    """What a guest asks in place of one of the host's servers."""
    try:
        address = ip_address(server)
    except ValueError:
        return ()
    return cluster if address.is_loopback or address.is_link_local else (str(address),)


def _service_domain(searches: Sequence[str]) -> str:
    """The longest domain of Services: the one of the machine's namespace (KubeVirt's rule)."""
    return max((one for one in searches if ".svc." in f"{one}."), key=len, default="")


def _unique(words: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(word for word in words if word)


def _fitting(searches: Iterable[str]) -> Iterable[str]:
    """As many as a resolver may have."""
    length = 0
    for count, search in enumerate(searches):
        length += len(search) + 1
        if count == MOST_SEARCHES or length > LONGEST_SEARCHES + 1:
            return
        yield search
