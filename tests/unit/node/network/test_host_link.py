"""The numbers and addresses of links to the host."""

from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from corral.node.network.host_link import (
    MAX_LINKS,
    HostLink,
    _owner,
    addresses,
    alias,
    free_number,
    overlapping,
)
from corral.node.network.namespace_nft_rules import HOST_RANGES
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Link, NetworkError


def test_the_ends_of_links_have_adjacent_addresses():
    ends = [end for number in range(MAX_LINKS) for pair in addresses(number) for end in pair]
    assert len({end.ip for end in ends}) == 4 * MAX_LINKS
    for number in range(MAX_LINKS):
        for (here, there), range_ in zip(addresses(number), HOST_RANGES, strict=True):
            assert here.network == there.network
            assert here.network.subnet_of(range_)
            assert here.ip != here.network.network_address
    assert addresses(1)[0] == (ip_interface("169.254.76.5/30"), ip_interface("169.254.76.6/30"))


def test_the_lowest_free_number_is_used():
    assert free_number([]) == 0
    assert free_number(["lo", "corral0", "corral2"]) == 1
    with pytest.raises(NetworkError, match="64 corrals"):
        free_number([f"corral{number}" for number in range(MAX_LINKS)])


def test_conflicting_routes_are_found():
    mine = ip_network("10.96.0.0/12")
    routes = [
        (ip_network("10.97.1.0/24"), "cni0"),
        (ip_network("10.0.0.0/8"), "vpn"),
        (ip_network("10.112.0.0/16"), "eth1"),
        (ip_network("fd00::/8"), "eth1"),
    ]
    assert list(overlapping(mine, routes)) == routes[:2]


def test_a_long_path_fits_into_the_alias_of_a_link():
    one, other = (alias(Path("/") / ("x" * 300) / end) for end in "ab")
    assert one != other
    assert max(len(one), len(other)) <= 255
    assert alias(Path("/var/lib/corral/network")) == "corral /var/lib/corral/network"


class Busy:
    """A host where another corral takes the number that was free a moment ago."""

    def __init__(self) -> None:
        self.present: set[str] = set()

    def links(self):
        return set(self.present)

    def index(self, name):
        return name in self.present

    def add_veth(self, name, **_):
        first = not self.present
        self.present.add("corral0")
        if first:
            raise NetworkError("the link cannot be made: File exists")


def test_concurrent_starts_get_different_numbers():
    with Namespace.current() as inside:
        made = HostLink(Path("/nowhere"), inside, [])
        assert made._create_pair(Busy()) == "corral1"
        made.close()


@pytest.mark.parametrize(
    ("link_alias", "owner"),
    [
        (alias(Path("/srv/other/network")), "corral3, the corral of /srv/other"),
        ("", "corral3"),
        ("of an administrator", "corral3"),
    ],
)
def test_the_owner_of_a_route_is_another_corral_or_a_device(link_alias, owner):
    link = Link(3, "corral3", "", 1500, is_up=True, master=0, alias=link_alias)
    assert _owner(link, link.name) == owner


def test_a_route_without_a_device_leads_nowhere():
    assert _owner(None, "") == "nowhere"
    assert _owner(None, "eth9") == "eth9", "it is gone meanwhile"
