"""Peers of WireGuard devices, and the changes that lead to them."""

from ipaddress import ip_address, ip_network

from corral.config import WIREGUARD_PORT as PORT
from corral.node.network.peers import Peer
from corral.node.network.wireguard_plan import (
    Endpoint,
    PeerChange,
    WireguardPeer,
    WireguardState,
    desired_peers,
    plan,
)

OWN, KEY, OTHER_KEY = b"o" * 32, b"k" * 32, b"l" * 32
HOST, OTHER_HOST = ip_address("192.0.2.1"), ip_address("2001:db8::2")
RANGE, OTHER_RANGE = ip_network("10.244.1.0/24"), ip_network("10.244.2.0/24")
MOVED, STALE = ip_network("10.244.9.5/32"), ip_network("10.244.9.6/32")


def peer(*allowed, address=HOST):
    return WireguardPeer(Endpoint(address, PORT), frozenset(allowed))


def state(peers, *, private_key=b"p" * 32, port=PORT):
    return WireguardState(private_key, port, peers)


def changes(observed, desired):
    """The changes of peers from one state to another, both by key."""
    return list(plan(state(observed), state(desired)).peers)


def test_a_host_is_a_peer_for_its_ranges_and_what_has_moved_there():
    hosts = [
        Peer(HOST, (RANGE,), (MOVED,), key=KEY),
        Peer(OTHER_HOST, (OTHER_RANGE,), key=OTHER_KEY, port=4500),
    ]
    assert desired_peers(hosts, (), own_key=OWN) == {
        KEY: peer(RANGE, MOVED),
        OTHER_KEY: WireguardPeer(Endpoint(OTHER_HOST, 4500), frozenset({OTHER_RANGE})),
    }


def test_a_host_without_a_key_of_its_own_is_no_peer():
    hosts = [Peer(HOST, (RANGE,)), Peer(OTHER_HOST, (OTHER_RANGE,), key=OWN)]
    assert desired_peers(hosts, (), own_key=OWN) == {}


def test_an_address_whose_machine_is_here_is_no_peers():
    hosts = [Peer(HOST, (RANGE,), (MOVED,), key=KEY)]
    assert desired_peers(hosts, {MOVED}, own_key=OWN) == {KEY: peer(RANGE)}


def test_an_address_that_has_moved_is_its_machines_whoever_claims_it():
    hosts = [
        Peer(HOST, (RANGE,), (MOVED,), key=KEY),
        Peer(OTHER_HOST, (OTHER_RANGE, MOVED), key=OTHER_KEY),
    ]
    desired = desired_peers(hosts, (), own_key=OWN)
    assert [key for key, each in desired.items() if MOVED in each.allowed] == [KEY]


def test_what_is_as_desired_stays():
    same = {KEY: peer(RANGE, MOVED)}
    assert not plan(state(same), state(same))


def test_a_new_device_gets_key_port_and_peers():
    made = plan(state({}, private_key=b"", port=0), state({KEY: peer(RANGE)}))
    assert (made.private_key, made.port) == (b"p" * 32, PORT)
    assert made.peers == [PeerChange(KEY, endpoint=Endpoint(HOST, PORT), allowed=(RANGE,))]


def test_a_peer_without_addresses_is_created():
    assert changes({}, {KEY: peer()}) == [PeerChange(KEY, endpoint=Endpoint(HOST, PORT))]


def test_an_address_that_moves_is_taken_from_its_former_peer_in_one_step():
    observed = {KEY: peer(RANGE, MOVED), OTHER_KEY: peer(OTHER_RANGE)}
    desired = {KEY: peer(RANGE), OTHER_KEY: peer(OTHER_RANGE, MOVED)}
    assert changes(observed, desired) == [PeerChange(OTHER_KEY, allowed=(MOVED,))]


def test_an_address_that_goes_home_is_taken_away_after_others_have_got_theirs():
    observed = {KEY: peer(RANGE, MOVED, STALE), OTHER_KEY: peer(OTHER_RANGE)}
    desired = {KEY: peer(RANGE), OTHER_KEY: peer(OTHER_RANGE, MOVED)}
    assert changes(observed, desired) == [
        PeerChange(OTHER_KEY, allowed=(MOVED,)),
        PeerChange(KEY, replaces=True, allowed=(RANGE,)),
    ]


def test_a_host_with_a_new_key_takes_its_range_over():
    assert changes({KEY: peer(RANGE)}, {OTHER_KEY: peer(RANGE)}) == [
        PeerChange(OTHER_KEY, endpoint=Endpoint(HOST, PORT), allowed=(RANGE,)),
        PeerChange(KEY, removes=True),
    ]


def test_a_host_that_has_left_is_no_peer_any_more():
    assert changes({KEY: peer(RANGE)}, {}) == [PeerChange(KEY, removes=True)]


def test_a_host_with_a_new_address_is_reached_there():
    assert changes({KEY: peer(RANGE)}, {KEY: peer(RANGE, address=OTHER_HOST)}) == [
        PeerChange(KEY, endpoint=Endpoint(OTHER_HOST, PORT))
    ]


def test_private_keys_are_not_printed():
    made = plan(state({}, private_key=b"", port=0), state({}))
    assert "ppp" not in repr(made) + repr(state({}))
