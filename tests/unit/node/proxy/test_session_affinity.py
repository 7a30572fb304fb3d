"""Clients that were with an endpoint are, after a restart, too."""

from ipaddress import ip_network

from corral.api.object import Key
from corral.node.proxy.nft_rules import Rules
from corral.node.proxy.service_rules import ClusterAddresses, ServiceRules
from corral.node.proxy.session_affinity import parse_clients

LISTING = """\
table inet corral_services {
	map services4 {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.9 . tcp . 80 : goto service-1 }
	}

	set clients-ab-10800 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
		elements = { 10.1.1.1 expires 1h1m984ms, 10.1.1.2 timeout 3h expires 2d2h59m59s984ms,
				10.1.1.3 expires 984ms }
	}

	set clients-cd-60 {
		type ipv6_addr
		flags dynamic,timeout
		timeout 1m
		elements = { fd00::1 expires 11s976ms }
	}

	set clients-ef-60 {
		type ipv4_addr
		flags dynamic,timeout
		timeout 1m
	}
}
"""


def test_clients_of_a_set_are_parsed_with_their_timeouts():
    assert parse_clients(LISTING) == {
        "clients-ab-10800": {"10.1.1.1": 3660, "10.1.1.2": 183599},
        "clients-cd-60": {"fd00::1": 11},
        "clients-ef-60": {},
    }


def test_a_missing_set_has_no_clients():
    assert parse_clients("") == {}


def test_clients_are_restored_into_existing_sets():
    rules = Rules(ClusterAddresses([ip_network("10.96.0.0/12")], []))
    rules.change({Key("default", "web"): ServiceRules(sets={"clients-cd-60": "type ipv6_addr"})})
    said = rules.full_transaction(parse_clients(LISTING))
    assert said.endswith(
        "add element inet corral_services clients-cd-60 {\n\tfd00::1 expires 11s\n}\n"
    )
    assert "clients-ab" not in said
