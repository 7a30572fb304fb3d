"""An address that moves with its machine from host to host: connections go on throughout.

The machine is a namespace with a link to one host after the other, as the guest's is.
"""

import os
from contextlib import ExitStack
from ipaddress import ip_network

import pytest
from tests.e2e.network.ends import RANGES, Pod, host_gw, make, vxlan
from tests.hosts import site

from corral.node.network.namespace_nft_rules import OVERLAY_LINK

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

GUARD = {4: "", 6: "lo"}
"""The link of an unreachable route."""


class Stream:
    """A connection, whose bytes are numbered and come back."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.number = 0

    def goes_on(self):
        """Send both ways; fail if a byte is missing or doubled, or the connection has ended."""
        for source, target in ((self.client, self.server), (self.server, self.client)):
            self.number += 1
            sent = self.number.to_bytes(4, "big") * 1000
            source.sendall(sent)
            received = b""
            while len(received) < len(sent):
                received += target.recv(len(sent) - len(received))
            assert received == sent


class Trip:
    """Three hosts, a pod whose address is of the first one, and a stream from a pod of each."""

    def __init__(self, stack, ends, version):
        self.ends, self.version = ends, version
        self.pods = []
        for number, end in enumerate(ends):
            end.protect()
            pod = Pod(number, *(each[9] for each in RANGES[number]))
            pod.plug(end)
            stack.enter_context(pod.namespace)
            self.pods.append(pod)
        self.address = RANGES[0][version == 6][7]
        self.moving = Pod(9, self.address)
        stack.enter_context(self.moving.namespace)
        self.listening = stack.enter_context(self._plugged(ends[0]).listen(self.address))
        self.listening.settimeout(10)
        self._stack = stack
        self.streams = []

    def _plugged(self, end):
        self.moving.plug(end)
        return self.moving

    async def join(self):
        for each in self.ends:
            await each.lead_to(*self.others(each))
        self.streams = [self.connect(pod) for pod in self.pods]
        self.go_on()

    def others(self, end):
        return [each for each in self.ends if each is not end]

    def connect(self, pod):
        client = self._stack.enter_context(pod.connect(self.address))
        server = self._stack.enter_context(self.listening.accept()[0])
        for each in (client, server):
            each.settimeout(10)
        return Stream(client, server)

    def go_on(self):
        for each in self.streams:
            each.goes_on()

    async def move(self, source, target):
        """Hand the pod over; the third host hears nothing of it yet."""
        self.moving.plug(target)
        await target.lead_to(*self.others(target))
        seen = target.with_moved(self.address) if self.is_foreign(target) else target.peer
        rest = [each for each in self.others(source) if each is not target]
        await source.lead_to(seen, *rest, left={ip_network(self.address)})

    def is_foreign(self, end):
        return not any(self.address in each for each in end.peer.ranges)

    async def show(self, end):
        """Let all hosts see in the API where the pod is."""
        own = end.peer
        seen = end.with_moved(self.address) if self.is_foreign(end) else own
        for each in self.others(end):
            await each.lead_to(seen, *(one for one in self.others(each) if one is not end))
        end.peer = seen
        await end.lead_to(*self.others(end))
        end.peer = own

    def hops(self, end):
        return end.inner_routes(self.address)


@pytest.fixture(params=["vxlan", "vxlan IPv6", "host-gw"])
async def trip(request, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    backend = host_gw if request.param == "host-gw" else vxlan
    with site(tmp_path, 3) as hosts, ExitStack() as stack:
        ends = [make(host, number, backend) for number, host in enumerate(hosts.hosts)]
        made = Trip(stack, ends, 6 if "IPv6" in request.param else 4)
        await made.join()
        yield made


async def test_connections_go_on_from_host_to_host_and_home_again(trip):
    home, second, third = trip.ends
    for source, target in ((home, second), (second, third), (third, home)):
        await trip.move(source, target)
        trip.go_on()
        trip.streams.append(trip.connect(trip.pods[1]))
        await trip.show(target)
        trip.go_on()
    trip.go_on()
    assert [trip.hops(each) for each in trip.ends][1:] == [[], []], "nothing is left of its trip"
    assert len(trip.hops(home)) == 1
    assert str(trip.address) not in " ".join(map(str, [*second.routes(), *third.routes()]))


async def test_a_late_look_at_the_api_does_not_lead_away_from_a_machine_that_is_here(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    await trip.show(second)
    await trip.move(second, third)
    await third.lead_to(home, second.with_moved(trip.address))
    trip.go_on()
    await trip.move(third, home)
    await home.lead_to(third, second.with_moved(trip.address))
    trip.go_on()


async def test_an_address_whose_machine_has_ended_is_unreachable_at_once(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    await trip.show(second)
    assert sorted(trip.hops(second)) == sorted([GUARD[trip.version], "pod9x2"])
    trip.moving.delete_link(second, "pod9x2")
    for end, pod in zip((home, third), (trip.pods[0], trip.pods[2]), strict=True):
        assert trip.hops(end) == [OVERLAY_LINK]
        with pytest.raises(OSError, match="No route to host"):
            pod.connect(trip.address)
    for each in trip.ends:
        await each.lead_to(*trip.others(each))
    assert [trip.hops(each) for each in (second, third)] == [[], []]


async def test_an_address_goes_to_its_machine_although_another_host_claims_a_range_of_it(trip):
    home, second, third = trip.ends
    await trip.move(home, second)
    await trip.show(second)
    claimed = ip_network(trip.address)
    third.peer = type(third.peer)(third.peer.address, (*third.peer.ranges, claimed))
    await home.lead_to(second.with_moved(trip.address), third)
    trip.streams[0].goes_on()
