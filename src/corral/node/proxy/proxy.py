"""Follows Services and their endpoints, and keeps the packet filter's table of them."""

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
from corral.node.proxy.nft_rules import PROBE, REFUSING, SILENT, TABLE, Rules
from corral.node.proxy.service_rules import NO_PART, Door, Part, Surroundings, part
from corral.node.proxy.session_affinity import remembered
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of, labels_of

SERVICE_NAME = "kubernetes.io/service-name"
OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
"""Label of Services that somebody else serves."""
PROBE_SECONDS = 30.0
"""So often is looked whether the table is still there."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 30.0
"""After a refusal everything is written again, after this long at first, and at most."""
RULES = "Services are not up to date"
FLOWS = "flows to endpoints that are gone are not forgotten"
AT_ONCE = 100
"""Services of one transaction: the kernel takes no more than some hundred kilobytes."""
MOST_LOOKS = 4
"""To look for the flows to one port takes the kernel as long as to look for all of them."""


class Network(Protocol):
    """What a proxy has to know of the machine network."""

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
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``nodes`` are this machine's, ``addresses`` those at which they have node ports.

        ``changed`` is told when ``problems`` answers something new.
        """
        self._health = {part: Health(part, changed) for part in (RULES, FLOWS)}
        self._network = network
        self._nodes = nodes
        self._services = context.informers.of(Service)
        self._slices = context.informers.of(EndpointSlice)
        self._slices.index("of service", _service_words)
        self._dirty: set[Key] = set()
        self._woken = asyncio.Event()
        self.rules = Rules(Surroundings(network.service_cidrs, network.pod_cidrs, tuple(addresses)))
        self._is_written = False
        self._left: dict[Door, frozenset[Backend]] = {}
        self._left_behind = asyncio.Event()
        self._services.handle(self._service_changed)
        self._slices.handle(self._slice_changed)

    async def run(self) -> None:
        """Keep the table until cancelled; what is in it stays.

        Nothing is written before the present state is known: what an earlier process wrote serves
        until then.
        """
        await self._services.synced()
        await self._slices.synced()
        flows = self._follow(FLOWS, self._forget, self._left_behind, None)
        rules = self._follow(RULES, self._write, self._woken, PROBE_SECONDS)
        async with Background() as tasks:
            tasks.start(flows, name="flows")
            await tasks.start(rules, name="rules")

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        return [f"{part}: {one.problem}" for part, one in self._health.items() if one.problem]

    async def _follow(
        self,
        what: str,
        act: Callable[[], Awaitable[None]],
        woken: asyncio.Event,
        seconds: float | None,
    ) -> None:
        """Act now, whenever woken, and after so many seconds; say ``what`` is wrong meanwhile."""
        pause = RETRY_SECONDS
        while True:
            woken.clear()
            try:
                await act()
            except NetworkError as error:
                self._health[what].say(error.full_message)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)
                continue
            pause = RETRY_SECONDS
            self._health[what].say("")
            await wait_at_most(woken, seconds)

    async def _write(self) -> None:
        """Bring the kernel up to date: by what changed, or as a whole."""
        keys = sorted(self._dirty)[: AT_ONCE if self._is_written else None]
        self._dirty.difference_update(keys)
        before = {key: self.rules.part(key) for key in keys}
        text = self.rules.change({key: self._part(key) for key in keys})
        left = lost_doors(before, self.rules)
        was_written, self._is_written = self._is_written, False  # until it is known to be
        if was_written:
            await self._network.namespace.call(nft.apply, text or PROBE)
        else:
            await self._network.namespace.call(write_whole, self.rules)
            left = self.rules.answering()
        self._is_written = True
        self._left |= left
        if left:
            self._left_behind.set()
        if self._dirty:
            self._woken.set()

    async def _forget(self) -> None:
        """Forget flows to who has left; this takes longer than to write rules."""
        left = dict(self._left)
        if left:
            await self._network.namespace.call(forget, left)
        for door, answering in left.items():
            if self._left.get(door) is answering:
                del self._left[door]

    def look_again(self) -> None:
        """Somebody may have removed the table."""
        self._woken.set()

    def _part(self, key: Key) -> Part:
        service = self._services.get(key)
        if service is None or OTHER_PROXY in labels_of(service):
            return NO_PART
        slices = self._slices.indexed("of service", str(key))
        return part(service, slices, self._nodes, self.rules.surroundings)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        for each in (old, new):
            if each is not None:
                self._wake(key_of(each))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for each in (old, new):
            for word in _service_words(each) if each is not None else ():
                self._wake(Key(*word.split("/", 1)))

    def _wake(self, key: Key) -> None:
        self._dirty.add(key)
        self._woken.set()


def write_whole(rules: Rules) -> None:
    """Write the whole table; what is there remembers its clients, and serves until the end.

    Acts on the calling thread's namespace; raises NetworkError.
    """
    try:
        clients = remembered(nft.query(f"list table {TABLE}"))
    except NetworkError:  # there is none
        clients = {}
    with suppress(NetworkError):
        # The kernel empties a table's maps before it lets go of its rules: who comes then asks
        # again, and is not refused.
        nft.apply(SILENT)
    text = rules.whole(clients)
    try:
        nft.apply(text)
    except NetworkError:
        if len(text) < nft.TRANSACTION_CHARACTERS:
            _refuse_again()
            raise
    else:
        return
    first, *rest = rules.in_steps(clients)
    try:
        nft.apply(first)
    except NetworkError:
        _refuse_again()
        raise
    # From here on the table lacks Services that have endpoints: who is not answered asks again,
    # and who were refused would not.  So it stays silent when a step fails, until all is written.
    for step in rest:
        nft.apply(step)


def _refuse_again() -> None:
    """Let a table that stays as it is refuse who is led nowhere, rather than let them hang."""
    with suppress(NetworkError):  # there is none
        nft.apply(REFUSING)


def lost_doors(before: Mapping[Key, Part], now: Rules) -> Mapping[Door, frozenset[Backend]]:
    """The doors at which somebody answers no more, and who may still."""
    return {
        door: now.part(key).answering.get(door, frozenset())
        for key, old in before.items()
        for door, answering in old.answering.items()
        if answering - now.part(key).answering.get(door, frozenset())
    }


def forget(doors: Mapping[Door, frozenset[Backend]]) -> int:
    """Forget the flows through doors to who may not answer there; answers how many.

    Of UDP it is all of them: the kernel would send on to a pod that is gone for as long as the
    client goes on asking.  Of TCP it is those that are no connection: one that nobody has answered
    yet finds somebody who does, and a port from which one was refused can be used again at once,
    by a connection that would be led there too otherwise.  Acts on the calling thread's namespace;
    raises NetworkError.
    """

    def is_stale(flow: Flow) -> bool:
        if flow.replier == flow.destination:
            return False
        answering = doors.get(Door(flow.protocol, flow.destination, flow.destination_port))
        if answering is None:
            answering = doors.get(Door(flow.protocol, None, flow.destination_port))
        answerer = Backend(str(flow.replier), flow.replier_port)
        return answering is not None and answerer not in answering

    return sum(
        delete_flows(is_stale, version=version, protocol=protocol, port=port)
        for protocol in PROTOCOLS
        for port in _ports(doors, protocol)
        for version in (4, 6)
    )


def _ports(doors: Iterable[Door], protocol: str) -> Collection[int | None]:
    """At which ports to look for flows; None is all of them at once."""
    ports = {door.port for door in doors if door.protocol == protocol}
    return ports if len(ports) <= MOST_LOOKS else (None,)


def _service_words(told: EndpointSlice) -> Sequence[str]:
    """The Service that a slice is of."""
    name = labels_of(told).get(SERVICE_NAME)
    return (str(Key(key_of(told).namespace, name)),) if name else ()
