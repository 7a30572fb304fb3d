"""Results of plugins, as they come and as they should not."""

from ipaddress import ip_address, ip_interface

import pytest

from corral.node.network.cni.result import addresses_of
from corral.node.network.netlink import NetworkError


def test_the_first_address_of_each_family_counts():
    ips = [
        {"address": "192.0.2.5/24", "gateway": "192.0.2.1"},
        {"address": "192.0.2.6/24"},
        {"address": "2001:db8::5/64", "interface": 2},
    ]
    found = addresses_of({"cniVersion": "1.0.0", "ips": ips, "interfaces": []})
    assert list(found.interfaces) == [ip_interface("192.0.2.5/24"), ip_interface("2001:db8::5/64")]
    assert found.addresses == (ip_address("192.0.2.5"), ip_address("2001:db8::5"))
    assert list(found.gateways) == [ip_address("192.0.2.1")]


def test_the_gateway_may_be_that_of_the_default_route():
    result = {
        "ips": [{"version": "4", "address": "192.0.2.5/32"}],
        "routes": [
            {"dst": "10.0.0.0/8", "gw": "192.0.2.9"},
            {"dst": "0.0.0.0/0", "gw": "169.254.1.1"},
        ],
    }
    assert list(addresses_of(result).gateways) == [ip_address("169.254.1.1")]


def test_name_servers_are_those_of_the_network():
    dns = {"nameservers": ["192.0.2.53"], "search": ["example.org"]}
    found = addresses_of({"ips": [{"address": "192.0.2.5/24"}], "dns": dns})
    assert found.resolver.servers == ["192.0.2.53"]
    assert found.resolver.searches == ["example.org"]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({}, "no address"),
        ({"ips": None}, "no address"),
        ({"ips": [{"address": "nowhere"}]}, "'nowhere' does not appear to be"),
        ({"ips": [{"address": 5}]}, r"\$.ips\[0\].address"),
        ({"ips": "many"}, r"\$.ips"),
        ({"ips": [{"address": "192.0.2.5/24", "gateway": "x"}]}, "'x'"),
    ],
)
def test_a_result_without_usable_addresses_is_an_error(result, message):
    with pytest.raises(NetworkError, match=message):
        addresses_of(result)
