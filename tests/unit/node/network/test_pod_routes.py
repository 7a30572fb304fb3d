"""Which routes of the machine namespace are written, and which stay."""

from ipaddress import ip_address, ip_network

from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.peers import Peer
from corral.node.network.pod_routes import arrived, guarded, local_addresses, sync_routes

OWN = Peer(ip_address("192.0.2.1"), (ip_network("10.244.0.0/24"), ip_network("fd00::/64")))
NATIVE, FOREIGN, MOVED = map(ip_network, ("10.244.0.7", "10.244.1.7", "10.244.2.7"))
VIA = ip_address("10.244.2.0")


class Table:
    """The routes of a namespace, as (destination, link), and the requests for it."""

    def __init__(self, *present):
        self.present = present
        self.added, self.deleted = [], []

    def routes(self, version):
        return [each for each in self.present if each[0].version == version]

    def add_route(self, destination, **options):
        self.added.append((destination, options.get("link", "")))

    def delete_route(self, destination, **options):
        self.deleted.append((destination, options.get("link", "")))


def test_links_of_pods_say_which_machines_are_here():
    table = Table((NATIVE, "pod1"), (FOREIGN, "pod2"), (MOVED, OVERLAY_LINK))
    assert local_addresses(table, (4, 6), ()) == {NATIVE, FOREIGN}
    assert local_addresses(table, (4, 6), {FOREIGN}) == {NATIVE}


def test_an_address_of_another_range_has_arrived():
    assert arrived(OWN, {NATIVE, FOREIGN, ip_network("fd00::7")}) == {FOREIGN}
    shown = Peer(OWN.address, OWN.ranges, (MOVED,))
    assert arrived(shown, set()) == {MOVED}
    assert guarded(shown) == {MOVED}


def test_an_address_that_the_api_shows_elsewhere_is_led_there_once_its_link_is_left():
    """Nothing says that it is unreachable in between: its connections would be reset."""
    table = Table((FOREIGN, "pod2"), (FOREIGN, ""))
    sync_routes(table, {}, guards=guarded(OWN), left={FOREIGN}, versions=(4,))
    assert table.deleted == [(FOREIGN, ""), (FOREIGN, "pod2")]


def test_routes_that_nothing_needs_are_deleted():
    table = Table((NATIVE, "pod1"), (FOREIGN, ""), (MOVED, OVERLAY_LINK), (OWN.ranges[0], ""))
    sync_routes(table, {}, guards=(), left=(), versions=(4,))
    assert table.deleted == [(FOREIGN, ""), (MOVED, OVERLAY_LINK)]
    table = Table((FOREIGN, ""), (MOVED, OVERLAY_LINK))
    sync_routes(table, {MOVED: VIA}, guards={FOREIGN}, left=(), versions=(4,))
    assert table.deleted == []
    assert table.added == [(FOREIGN, ""), (MOVED, OVERLAY_LINK)]


def test_the_route_by_a_link_that_a_machine_has_left_is_deleted_or_replaced():
    table = Table((NATIVE, "pod1"), (FOREIGN, "pod2"))
    sync_routes(table, {NATIVE: VIA}, guards=(), left={NATIVE, FOREIGN}, versions=(4,))
    assert table.deleted == [(FOREIGN, "pod2")]
    assert table.added == [(NATIVE, OVERLAY_LINK)]
