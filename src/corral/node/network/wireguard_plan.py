"""The desired state of a WireGuard device, and the changes that lead there.  No I/O.

Allowed IPs of a peer are the destinations of packets that are encrypted for it, and the sources of
packets that are accepted from it.  An address belongs to one peer at a time: the kernel and
wireguard-go take it from the peer that had it, in the same step.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from corral.node.network.netlink import Address, Network
from corral.node.network.peers import Peer


class Endpoint(NamedTuple):
    """Where outer packets to a peer go."""

    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class WireguardPeer:
    """A peer of a device; ``endpoint`` is None where the device has none yet."""

    endpoint: Endpoint | None
    allowed: frozenset[Network]


@dataclass(frozen=True, slots=True)
class WireguardState:
    """The configuration of a device: its private key, its UDP port, and its peers by public key."""

    private_key: bytes = field(repr=False)
    port: int
    peers: Mapping[bytes, WireguardPeer]


@dataclass(frozen=True, slots=True)
class PeerChange:
    """A change of one peer, which is created if necessary.

    replaces: the peer loses all allowed IPs but these.
    """

    key: bytes
    removes: bool = False
    endpoint: Endpoint | None = None
    replaces: bool = False
    allowed: Sequence[Network] = ()


@dataclass(frozen=True, slots=True)
class WireguardChanges:
    """Changes of a device, in their order; None is what stays."""

    private_key: bytes | None = field(default=None, repr=False)
    port: int | None = None
    peers: Sequence[PeerChange] = ()

    def __bool__(self) -> bool:
        return bool(self.private_key or self.port or self.peers)


def desired_peers(
    peers: Iterable[Peer], local: Collection[Network], *, own_key: bytes
) -> dict[bytes, WireguardPeer]:
    """Return the peers of a device by public key; hosts without a key are left out.

    local: addresses whose machines are here, whatever the API shows; own_key: this host's public
    key, which is nobody else's.  An address that has moved is its machine's, whichever range or
    peer claims it.
    """
    reachable = {each.key: each for each in peers if each.key is not None and each.key != own_key}
    owners = {cidr: key for key, each in reachable.items() for cidr in each.ranges}
    moved = {cidr: key for key, each in reachable.items() for cidr in each.moved}
    owners |= {cidr: key for cidr, key in moved.items() if cidr not in local}
    allowed: dict[bytes, set[Network]] = {key: set() for key in reachable}
    for cidr, key in owners.items():
        allowed[key].add(cidr)
    return {
        key: WireguardPeer(Endpoint(each.address, each.port), frozenset(allowed[key]))
        for key, each in reachable.items()
    }


def plan(observed: WireguardState, desired: WireguardState) -> WireguardChanges:
    """Return the changes that lead from one state to another.

    Sessions of peers that stay are kept.  Peers that only gain addresses come first: they take
    these from others, which then need not replace their allowed IPs, so no packet is dropped
    between two steps.
    """
    claimed = {cidr for each in desired.peers.values() for cidr in each.allowed}
    changes = [
        change
        for key, each in desired.peers.items()
        if (change := _peer_change(key, observed.peers.get(key), each, claimed)) is not None
    ]
    changes.sort(key=lambda each: each.replaces)
    changes += [PeerChange(key, removes=True) for key in observed.peers if key not in desired.peers]
    return WireguardChanges(
        private_key=desired.private_key if desired.private_key != observed.private_key else None,
        port=desired.port if desired.port != observed.port else None,
        peers=changes,
    )


def _peer_change(
    key: bytes,
    observed: WireguardPeer | None,
    desired: WireguardPeer,
    claimed: Collection[Network],
) -> PeerChange | None:
    """Return the change of a peer that stays or comes; None if it stays as it is.

    claimed: the addresses that any peer is to have.
    """
    before = observed or WireguardPeer(None, frozenset())
    replaces = any(each not in claimed for each in before.allowed - desired.allowed)
    allowed = desired.allowed if replaces else desired.allowed - before.allowed
    endpoint = desired.endpoint if desired.endpoint != before.endpoint else None
    if observed is not None and endpoint is None and not replaces and not allowed:
        return None
    ordered = tuple(sorted(allowed, key=lambda each: (each.version, each)))
    return PeerChange(key, endpoint=endpoint, replaces=replaces, allowed=ordered)
