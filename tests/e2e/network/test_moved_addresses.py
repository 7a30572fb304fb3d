"""An address that moves with its machine from host to host: connections go on throughout.

The machine is a namespace with a link to one host after the other, as the guest's is.
"""

import os
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_network
from itertools import count

import pytest
from tests.e2e.network.ends import RANGES, Pod, host_gw, make, vxlan, wireguard
from tests.hosts import site

from corral.node.network.namespace_nft_rules import OVERLAY_LINK

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

GUARD = {4: "", 6: "lo"}
"""The link of an unreachable route."""
NUMBERS = count(10)
BACKENDS = {
    "vxlan": (vxlan, (4, 6), True),
    "host-gw": (host_gw, (4,), True),
    "wireguard": (wireguard, (4, 6), False),
}
"""The backends, the IP versions that they lead, and whether a host hands packets of others on.

With WireGuard each host accepts packets from the host of their source only.
"""


class Stream:
    """A connection of a pod on a host, whose bytes are numbered and come back."""

    def __init__(self, end, client, server):
        self.end, self.client, self.server = end, client, server
        self.number = 0

    def goes_on(self):
        """Send both ways; fail if a byte is missing or doubled, or the connection has ended."""
        for source, target in ((self.client, self.server), (self.server, self.client)):
            self.number += 1
            sent = self.number.to_bytes(4, "big") * 1000
            source.sendall(sent)
            received = b""
            while len(received) < len(sent):
                more = target.recv(len(sent) - len(received))
                assert more, "the connection has ended"
                received += more
            assert received == sent


class Trip:
    """Three hosts, a pod with addresses of the first one's ranges, and streams to it from all."""

    def __init__(self, stack, ends, versions, hands_on):
        self.ends, self.versions, self.hands_on = ends, versions, hands_on
        self._stack = stack
        number = next(NUMBERS)
        self.addresses = self._of(0, number)
        self.moving = self._pod(number, self.addresses, ends[0])
        self.pods = []
        for which, end in enumerate(ends):
            own = next(NUMBERS)
            self.pods.append(self._pod(own, self._of(which, own), end))
        self._listening = [stack.enter_context(self.moving.listen(each)) for each in self.addresses]
        for each in self._listening:
            each.settimeout(60)
        self.streams = []

    def _of(self, which, number):
        return [each[number] for each in RANGES[which] if each.version in self.versions]

    def _pod(self, number, addresses, end):
        pod = Pod(number, *addresses)
        self._stack.enter_context(pod.namespace)
        pod.plug(end)
        return pod

    async def begin(self):
        for each in self.ends:
            await each.lead_to(*self.others(each))
        for each in self.pods:
            self.connect(each)
        self.go_on()

    def others(self, end):
        return [each for each in self.ends if each is not end]

    def connect(self, pod):
        for address, listening in zip(self.addresses, self._listening, strict=True):
            client = self._stack.enter_context(pod.connect(address))
            server = self._stack.enter_context(listening.accept()[0])
            for each in (client, server):
                each.settimeout(60)
            end = self.ends[self.pods.index(pod)]
            self.streams.append(Stream(end, client, server))

    def go_on(self, *aware):
        """Have the streams go on; ``aware`` are the hosts that know where the pod is, if not all.

        Where no host hands packets on, only theirs do.
        """
        for each in self.streams:
            if not aware or self.hands_on or each.end in aware:
                each.goes_on()

    async def move(self, source, target):
        """Hand the pod over; the third host hears nothing of it yet."""
        self.moving.plug(target)
        await target.lead_to(*self.others(target))
        rest = [each for each in self.others(source) if each is not target]
        left = {ip_network(each) for each in self.addresses}
        await source.lead_to(self.shown(target), *rest, left=left)

    async def show(self, end):
        """Let all hosts see in the API where the pod is."""
        own, end.peer = end.peer, self.shown(end)
        for each in self.ends:
            await each.lead_to(*self.others(each))
        end.peer = own

    def shown(self, end):
        """Return a host as the API shows it once the pod is there."""
        return end.peer if end is self.ends[0] else end.with_moved(*self.addresses)

    def hops(self, end):
        """Return the links to the addresses on a host."""
        return [end.inner_routes(each) for each in self.addresses]


@pytest.fixture(params=BACKENDS, scope="module")
def hosts(request, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    backend, *properties = BACKENDS[request.param]
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        ends = [make(host, number, backend) for number, host in enumerate(made.hosts)]
        for each in ends:
            each.protect()
        yield ends, *properties


@pytest.fixture
async def trip(hosts):
    with ExitStack() as stack:
        made = Trip(stack, *hosts)
        await made.begin()
        yield made


async def test_connections_go_on_from_host_to_host_and_home_again(trip):
    home, second, third = trip.ends
    for source, target in ((home, second), (second, third), (third, home)):
        await trip.move(source, target)
        trip.go_on(source, target)
        trip.connect(trip.pods[1 if trip.hands_on else trip.ends.index(source)])
        await trip.show(target)
        trip.go_on()
    nothing = [[] for _ in trip.addresses]
    assert [trip.hops(each) for each in (second, third)] == [nothing, nothing]
    assert [len(each) for each in trip.hops(home)] == [1] * len(trip.addresses)
    assert ip_network(trip.addresses[0]) not in second.routes() | third.routes()


async def test_what_the_api_shows_late_does_not_lead_away_from_a_machine_that_is_here(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    await trip.show(second)
    await trip.move(second, third)
    late = trip.shown(second)
    await third.lead_to(home, late)
    trip.go_on(second, third)
    await trip.move(third, home)
    await home.lead_to(third, late)
    trip.go_on(third, home)


async def test_an_address_whose_machine_has_ended_is_unreachable_at_once(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    await trip.show(second)
    trip.moving.delete_link(second)
    for address, links in zip(trip.addresses, trip.hops(second), strict=True):
        assert links == [GUARD[address.version]]
    for pod in (trip.pods[0], trip.pods[2]):
        for address in trip.addresses:
            with pytest.raises(OSError, match=r"No route to host|Network is unreachable"):
                pod.connect(address)
    assert trip.hops(third) == [[OVERLAY_LINK]] * len(trip.addresses)
    for each in trip.ends:
        await each.lead_to(*trip.others(each))
    nothing = [[] for _ in trip.addresses]
    assert [trip.hops(each) for each in (second, third)] == [nothing, nothing]


async def test_an_address_leads_to_its_machine_although_another_host_claims_it_as_a_range(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    claimed = [ip_network(each) for each in trip.addresses]
    thief = replace(third.peer, ranges=(*third.peer.ranges, *claimed))
    await home.lead_to(trip.shown(second), thief)
    trip.streams[0].goes_on()
