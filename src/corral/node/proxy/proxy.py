"""Watches Services and EndpointSlices, and writes the nftables table."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Protocol

from lightkube.models.core_v1 import Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.aio import Background, wait_at_most
from corral.api.object import Key
from corral.node.health import Health
from corral.node.network import nft
from corral.node.network.conntrack import PROTOCOLS, Flow, delete_flows
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError
from corral.node.proxy.backends import Backend
from corral.node.proxy.nft_rules import DROP_UNKNOWN, PROBE, REJECT_UNKNOWN, TABLE, Rules
from corral.node.proxy.service_rules import (
    NO_RULES,
    ClusterAddresses,
    Frontend,
    ServiceRules,
    rules_for,
)
from corral.node.proxy.session_affinity import parse_clients
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of, labels_of

SERVICE_NAME = "kubernetes.io/service-name"
OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
"""Label of Services that another proxy serves."""
PROBE_SECONDS = 30.0
"""Interval of checks whether the table still exists."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 30.0
"""First and longest backoff after a failure, which rewrites the whole table."""
RULES = "Services are not up to date"
FLOWS = "flows to endpoints that are gone are not deleted"
MAX_BATCH = 100
"""Services in one transaction: the kernel accepts some hundred kilobytes."""
MAX_PORT_DUMPS = 4
"""With more ports all flows are dumped at once: a dump for one port takes the kernel as long."""


class Network(Protocol):
    """The part of the machine network that a proxy needs."""

    @property
    def namespace(self) -> Namespace: ...
    @property
    def pod_cidrs(self) -> Sequence[IPv4Network | IPv6Network]: ...
    @property
    def service_cidrs(self) -> Sequence[IPv4Network | IPv6Network]: ...


class Proxy:
    """The Services of a cluster, in the machine namespace."""

    def __init__(
        self,
        context: ControllerContext,
        network: Network,
        *,
        nodes: Collection[str],
        addresses: Sequence[IPv4Address | IPv6Address] = (),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch Services for ``nodes``, this host's; ``addresses`` are those of their node ports.

        ``on_change`` is called when ``problems()`` changes.
        """
        self._health = {problem: Health(problem, on_change) for problem in (RULES, FLOWS)}
        self._network = network
        self._nodes = nodes
        self._services = context.informers.of(Service)
        self._slices = context.informers.of(EndpointSlice)
        self._slices.index(_service_index_keys)
        self._dirty: set[Key] = set()
        self._rules_due = asyncio.Event()
        self.rules = Rules(
            ClusterAddresses(network.service_cidrs, network.pod_cidrs, tuple(addresses))
        )
        self._is_written = False
        self._stale: dict[Frontend, frozenset[Backend]] = {}
        self._flows_due = asyncio.Event()
        self._services.handle(self._service_changed)
        self._slices.handle(self._slice_changed)

    async def run(self) -> None:
        """Keep the table up to date until cancelled; it stays.

        Nothing is written before the caches have synced: until then the table of an earlier process
        serves.
        """
        await self._services.synced()
        await self._slices.synced()
        flows = self._retry_loop(FLOWS, self._delete_stale_flows, self._flows_due, None)
        rules = self._retry_loop(RULES, self._write, self._rules_due, PROBE_SECONDS)
        async with Background() as tasks:
            tasks.start(flows, name="flows")
            await tasks.start(rules, name="rules")

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        return [f"{name}: {each.problem}" for name, each in self._health.items() if each.problem]

    async def _retry_loop(
        self,
        problem: str,
        action: Callable[[], Awaitable[None]],
        due: asyncio.Event,
        seconds: float | None,
    ) -> None:
        """Act now, on each wake-up and after so many seconds; report ``problem`` while it fails."""
        backoff = RETRY_SECONDS
        while True:
            due.clear()
            try:
                await action()
            except NetworkError as error:
                self._health[problem].report(error.full_message)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, MAX_RETRY_SECONDS)
                continue
            backoff = RETRY_SECONDS
            self._health[problem].report("")
            await wait_at_most(due, seconds)

    async def _write(self) -> None:
        """Write the changed Services to the kernel, or the whole table."""
        keys = sorted(self._dirty)[: MAX_BATCH if self._is_written else None]
        self._dirty.difference_update(keys)
        before = {key: self.rules.rules_of(key) for key in keys}
        text = self.rules.change({key: self._rules_for(key) for key in keys})
        stale = frontends_with_lost_backends(before, self.rules)
        was_written, self._is_written = self._is_written, False  # until the write has succeeded
        if was_written:
            await self._network.namespace.call(nft.apply, text or PROBE)
        else:
            await self._network.namespace.call(write_table, self.rules)
            stale = self.rules.backends()
        self._is_written = True
        self._stale |= stale
        if stale:
            self._flows_due.set()
        if self._dirty:
            self._rules_due.set()

    async def _delete_stale_flows(self) -> None:
        """Delete flows to lost backends; slower than writing rules, so apart from it."""
        stale = dict(self._stale)
        if stale:
            await self._network.namespace.call(delete_stale_flows, stale)
        for frontend, backends in stale.items():
            if self._stale.get(frontend) is backends:
                del self._stale[frontend]

    def resync(self) -> None:
        """Check the table: it may have been removed."""
        self._rules_due.set()

    def _rules_for(self, key: Key) -> ServiceRules:
        service = self._services.get(key)
        if service is None or OTHER_PROXY in labels_of(service):
            return NO_RULES
        slices = self._slices.indexed(_service_index_keys, str(key))
        return rules_for(service, slices, self._nodes, self.rules.addresses)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        for each in (old, new):
            if each is not None:
                self._enqueue(key_of(each))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for each in (old, new):
            for word in _service_index_keys(each) if each is not None else ():
                self._enqueue(Key(*word.split("/", 1)))

    def _enqueue(self, key: Key) -> None:
        self._dirty.add(key)
        self._rules_due.set()


def write_table(rules: Rules) -> None:
    """Replace the whole table; session affinity is kept, and the old table serves until the end.

    Acts on the calling thread's namespace; raises NetworkError.
    """
    try:
        clients = parse_clients(nft.query(f"list table {TABLE}"))
    except NetworkError:  # there is none
        clients = {}
    with suppress(NetworkError):
        # The kernel empties a table's maps before it removes its rules: until then packets are
        # dropped, so that clients retry, instead of rejected.
        nft.apply(DROP_UNKNOWN)
    text = rules.full_transaction(clients)
    try:
        nft.apply(text)
    except NetworkError:
        if len(text) < nft.TRANSACTION_CHARACTERS:
            _reject_unknown()
            raise
    else:
        return
    first, *transactions = rules.split_transactions(clients)
    try:
        nft.apply(first)
    except NetworkError:
        _reject_unknown()
        raise
    # From here on the table lacks Services that have endpoints.  Clients retry when packets are
    # dropped, and would not if they were rejected: so it drops until the last step is written.
    for transaction in transactions:
        nft.apply(transaction)


def _reject_unknown() -> None:
    """Make an existing table reject packets to unknown ports again, rather than drop them."""
    with suppress(NetworkError):  # there is none
        nft.apply(REJECT_UNKNOWN)


def frontends_with_lost_backends(
    before: Mapping[Key, ServiceRules], now: Rules
) -> Mapping[Frontend, frozenset[Backend]]:
    """Return the frontends that have lost a backend, each with the backends that are left."""
    return {
        frontend: now.rules_of(key).backends.get(frontend, frozenset())
        for key, old in before.items()
        for frontend, backends in old.backends.items()
        if backends - now.rules_of(key).backends.get(frontend, frozenset())
    }


def delete_stale_flows(frontends: Mapping[Frontend, frozenset[Backend]]) -> int:
    """Delete the flows of frontends to backends that they have lost; return their number.

    For UDP all of them: the kernel would send on to a pod that is gone for as long as the client
    sends.  For TCP those that are not
    established: an unanswered one then gets another backend, and a client whose connection was
    reset can reuse its port at once, for a connection that would be translated to the same backend
    otherwise.  Acts on the calling thread's namespace; raises NetworkError.
    """

    def is_stale(flow: Flow) -> bool:
        if flow.replier == flow.destination:
            return False
        backends = frontends.get(Frontend(flow.protocol, flow.destination, flow.destination_port))
        if backends is None:
            backends = frontends.get(Frontend(flow.protocol, None, flow.destination_port))
        backend = Backend(str(flow.replier), flow.replier_port)
        return backends is not None and backend not in backends

    return sum(
        delete_flows(is_stale, version=version, protocol=protocol, port=port)
        for protocol in PROTOCOLS
        for port in _ports(frontends, protocol)
        for version in (4, 6)
    )


def _ports(frontends: Iterable[Frontend], protocol: str) -> Collection[int | None]:
    """Return the ports whose flows to dump; None for all at once."""
    ports = {frontend.port for frontend in frontends if frontend.protocol == protocol}
    return ports if len(ports) <= MAX_PORT_DUMPS else (None,)


def _service_index_keys(endpoint_slice: EndpointSlice) -> Sequence[str]:
    """Return the index keys of a slice: its Service."""
    name = labels_of(endpoint_slice).get(SERVICE_NAME)
    return (str(Key(key_of(endpoint_slice).namespace, name)),) if name else ()
