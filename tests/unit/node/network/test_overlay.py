"""What the backend between hosts is given, as Nodes, pods and machines change."""

import asyncio
import base64
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network

import pytest
from lightkube.models.core_v1 import Namespace, Node, Pod

from corral.aio import Background
from corral.api.kinds.core.node_addresses import WIREGUARD_KEY
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.network.netlink import NetworkError
from corral.node.network.overlay import GIVE_BACK_SECONDS, RETRY_SECONDS, Overlay
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.store import Store

pytestmark = pytest.mark.looptime

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
OWN, OTHER, THIRD = (ip_address(f"192.0.2.{number}") for number in (1, 2, 3))
ADDRESS = ip_address("10.244.1.7")
MOVED = ip_network(ADDRESS)
TARGET = Key("default", "moved")


class Ways:
    """Takes down what it is to lead to."""

    def __init__(self):
        self.own, self.peers, self.left, self.gone = None, {}, set(), []
        self.ever_left = set()
        self.failure = None

    async def apply(self, own, peers, gone, left):
        if self.failure is not None:
            raise self.failure
        self.own, self.peers, self.left, self.gone = own, peers, left, list(gone)
        self.ever_left |= left

    def moved(self):
        return {each.address: each.moved for each in (self.own, *self.peers.values()) if each.moved}


class Site:
    def __init__(self, client, overlay, ways, lock):
        self.client, self.overlay, self.ways, self.lock = client, overlay, ways, lock
        self.changes = 0

    async def node(self, name, address, *ranges):
        await self.client.create(
            Node, {"metadata": {"name": name}, "spec": {"podCIDRs": list(ranges)}}
        )
        addresses = [{"type": "InternalIP", "address": str(address)}]
        await self.client.patch(
            Node, Key("", name), {"status": {"addresses": addresses}}, subresource="status"
        )

    async def pod(self, name, node, *ips):
        """A pod that a VMI has migrated to."""
        metadata = {"name": name, "namespace": "default", "labels": {MIGRATION_UID: "m"}}
        spec = {"nodeName": node, "containers": [{"name": "compute", "image": "i"}]}
        await self.client.create(Pod, {"metadata": metadata, "spec": spec})
        await self.show(name, *ips)

    async def show(self, name, *ips, phase="Running"):
        status = {"phase": phase, "podIPs": [{"ip": str(each)} for each in ips]}
        await self.client.patch(Pod, Key("default", name), {"status": status}, subresource="status")

    async def until_idle(self):
        await asyncio.sleep(1)


@asynccontextmanager
async def running():
    store = Store.in_memory()
    server = ApiServer(store)
    client = Client(InProcess(server.handle, ADMIN))
    context = ControllerContext(Client(InProcess(server.handle, ADMIN)))
    await client.create(Namespace, {"metadata": {"name": "default"}})
    ways, lock = Ways(), asyncio.Lock()

    def changed():
        site.changes += 1

    overlay = Overlay(
        context,
        ways,
        address=OWN,
        pod_cidrs=[ip_network("10.244.0.0/16")],
        lock=lock,
        on_change=changed,
    )
    site = Site(client, overlay, ways, lock)
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        tasks.start(overlay.run(), name="overlay")
        yield site
    await store.close()


@pytest.fixture
async def site():
    async with running() as made:
        for number, address in enumerate((OWN, OTHER, THIRD)):
            await made.node(f"n{number}", address, f"10.244.{number}.0/24")
        await made.until_idle()
        yield made


async def test_a_host_that_is_alone_needs_no_ways():
    async with running() as alone:
        await alone.node("n0", OWN, "10.244.0.0/24")
        await alone.until_idle()
        assert alone.ways.own is None
        assert not alone.overlay.has_peers


async def test_hosts_are_led_to_while_their_nodes_exist(site):
    assert site.ways.own.ranges == (ip_network("10.244.0.0/24"),)
    assert {each.address: each.ranges for each in site.ways.peers.values()} == {
        OTHER: (ip_network("10.244.1.0/24"),),
        THIRD: (ip_network("10.244.2.0/24"),),
    }
    assert site.overlay.has_peers
    await site.client.delete(Node, Key("", "n2"))
    await site.until_idle()
    assert [each.address for each in site.ways.gone] == [THIRD]


async def test_a_host_with_a_new_key_is_synced(site):
    key = base64.b64encode(b"k" * 32).decode()
    await site.client.patch(
        Node, Key("", "n2"), {"metadata": {"annotations": {WIREGUARD_KEY: key}}}
    )
    await site.until_idle()
    assert {each.address: each.key for each in site.ways.peers.values()} == {
        OTHER: None,
        THIRD: b"k" * 32,
    }


async def test_an_address_is_led_to_the_host_of_the_pod_that_shows_it(site):
    await site.pod("moved", "n2", ADDRESS)
    await site.until_idle()
    assert site.ways.moved() == {THIRD: (MOVED,)}
    await site.show("moved", ADDRESS, phase="Succeeded")
    await site.until_idle()
    assert site.ways.moved() == {}


async def test_an_address_that_moves_here_is_this_hosts(site):
    await site.pod("moved", "n0", ADDRESS)
    await site.until_idle()
    assert site.ways.moved() == {OWN: (MOVED,)}


async def test_an_address_that_leaves_is_led_away_before_the_api_shows_it(site):
    await site.pod("moved", "n2")
    site.overlay.lead([ADDRESS], "n2", TARGET)
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({THIRD: (MOVED,)}, {MOVED})
    await site.show("moved", ADDRESS)
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({THIRD: (MOVED,)}, set())


async def test_an_address_that_goes_home_leaves_a_host(site):
    await site.pod("moved", "n1")
    site.overlay.lead([ADDRESS], "n1", TARGET)
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({}, {MOVED})
    site.overlay.forget([ADDRESS])
    await site.until_idle()
    assert site.ways.left == set()


async def test_an_address_that_moves_within_the_host_does_not_leave_it(site):
    await site.pod("moved", "n0")
    site.overlay.lead([ADDRESS], "n0", TARGET)
    await site.until_idle()
    assert site.ways.left == set()


async def test_an_address_is_not_led_to_a_target_that_has_ended(site):
    await site.pod("moved", "n2")
    site.overlay.lead([ADDRESS], "n2", TARGET)
    await site.show("moved", phase="Failed")
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({}, set())


async def test_ways_are_synced_when_a_pods_link_has_gone(site):
    site.ways.own = None
    site.overlay.links_changed()
    await site.until_idle()
    assert site.ways.own is not None


async def test_an_address_that_has_come_back_is_not_led_away(site):
    await site.pod("moved", "n2")
    site.overlay.lead([ADDRESS], "n2", TARGET)
    await site.until_idle()
    assert site.ways.left == {MOVED}
    site.overlay.arrived([ADDRESS])
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({}, set())


async def test_an_address_that_comes_back_while_routes_change_is_not_led_away(site):
    await site.pod("moved", "n2")
    async with site.lock:
        site.overlay.lead([ADDRESS], "n2", TARGET)
        await site.until_idle()
    site.overlay.arrived([ADDRESS])  # in the same step as the lock's release, as a take-over does
    await site.until_idle()
    assert MOVED not in site.ways.ever_left


async def test_an_address_whose_machine_does_not_come_is_led_to_where_the_api_shows_it(site):
    await site.pod("source", "n2", ADDRESS)
    await site.until_idle()
    returned = asyncio.ensure_future(site.overlay.give_back([ADDRESS]))
    async with site.lock:
        await asyncio.sleep(GIVE_BACK_SECONDS / 2)
        assert not returned.done()
    await returned
    assert (site.ways.moved(), site.ways.left) == ({THIRD: (MOVED,)}, {MOVED})
    site.overlay.links_changed()
    await site.until_idle()
    assert (site.ways.moved(), site.ways.left) == ({THIRD: (MOVED,)}, set())


async def test_a_host_that_is_alone_has_no_address_to_give_back():
    async with running() as alone, asyncio.timeout(GIVE_BACK_SECONDS / 2):
        await alone.node("n0", OWN, "10.244.0.0/24")
        await alone.overlay.give_back([ADDRESS])


async def test_a_failing_machine_waits_for_its_routes_only_so_long(site):
    async with site.lock, asyncio.timeout(2 * GIVE_BACK_SECONDS):
        await site.overlay.give_back([ADDRESS])


async def test_routes_are_not_changed_while_a_machine_takes_an_address_over(site):
    async with site.lock:
        await site.pod("moved", "n2", ADDRESS)
        await site.until_idle()
        assert site.ways.moved() == {}
    await site.until_idle()
    assert site.ways.moved() == {THIRD: (MOVED,)}


async def test_a_failure_is_reported_until_a_retry_succeeds(site):
    site.ways.failure = NetworkError("no link", "Add one.")
    site.overlay.resync()
    await site.until_idle()
    assert site.overlay.problems() == ["no link. Add one."]
    site.ways.failure = None
    await asyncio.sleep(RETRY_SECONDS)
    assert site.overlay.problems() == []
