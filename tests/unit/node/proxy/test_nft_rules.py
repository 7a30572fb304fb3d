"""The table as text."""

from ipaddress import ip_address, ip_network

from corral.api.object import Key
from corral.node.network.nft import TRANSACTION_CHARACTERS
from corral.node.proxy.nft_rules import Rules
from corral.node.proxy.service_rules import (
    NO_RULES,
    Claim,
    ClusterAddresses,
    ElementKey,
    ServiceRules,
)

WEB, API = Key("default", "web"), Key("default", "api")
SLOT = ElementKey("services4", "10.96.0.9 . tcp . 80")

FRAME = """\
add table inet corral_services
delete table inet corral_services
table inet corral_services {
	map services4 { type ipv4_addr . inet_proto . inet_service : verdict; }
	map services6 { type ipv6_addr . inet_proto . inet_service : verdict; }
	map nodeports4 { type inet_proto . inet_service : verdict; }
	map nodeports6 { type inet_proto . inet_service : verdict; }
	set hairpin4 { type ipv4_addr . ipv4_addr; }
	set hairpin6 { type ipv6_addr . ipv6_addr; }
	chain refuse {
		meta l4proto tcp reject with tcp reset
		reject with icmpx port-unreachable
	}
	chain dispatch {
		ip daddr . meta l4proto . th dport vmap @services4
		ip6 daddr . meta l4proto . th dport vmap @services6
		ip daddr 192.0.2.1 meta l4proto . th dport vmap @nodeports4
		ip daddr 10.96.0.0/12 goto refuse
		ip6 daddr fd00:10:96::/112 goto refuse
		ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @nodeports4
		ip6 daddr != ::1 fib daddr type local meta l4proto . th dport vmap @nodeports6
	}
	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		jump dispatch
	}
	chain output {
		type nat hook output priority -100; policy accept;
		jump dispatch
	}
	chain postrouting {
		type nat hook postrouting priority 100; policy accept;
		ct status dnat ip saddr . ip daddr @hairpin4 masquerade
		ct status dnat ip6 saddr . ip6 daddr @hairpin6 masquerade
	}
	chain gone {
		type filter hook prerouting priority -90; policy accept;
		ip daddr 10.244.0.0/16 fib daddr type != local fib daddr oif missing goto refuse
	}
}
"""


def rules() -> Rules:
    return Rules(
        ClusterAddresses(
            [ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/112")],
            [ip_network("10.244.0.0/16")],
            [ip_address("192.0.2.1"), ip_address("127.0.0.1")],
        )
    )


def leading_to(*backends: str, value: str = "goto service-1", rank: int = 0) -> ServiceRules:
    return ServiceRules(
        chains={"service-1": tuple(f"rule {each}" for each in backends)},
        elements={
            SLOT: Claim(rank, value),
            **{ElementKey("hairpin4", f"{each} . {each}"): Claim(0, "") for each in backends},
        },
    )


def test_the_table_without_services():
    assert rules().full_transaction() == FRAME


def test_the_table_with_one_service():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2")})
    assert one.full_transaction() == FRAME + (
        "add chain inet corral_services service-1\n"
        "add rule inet corral_services service-1 rule 10.244.0.2\n"
        "add element inet corral_services services4 {\n"
        "\t10.96.0.9 . tcp . 80 : goto service-1\n}\n"
        "add element inet corral_services hairpin4 {\n"
        "\t10.244.0.2 . 10.244.0.2\n}\n"
    )


def test_an_added_endpoint_changes_its_chain_only():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2")})
    assert one.change({WEB: leading_to("10.244.0.2", "10.244.0.3")}) == (
        "flush chain inet corral_services service-1\n"
        "add rule inet corral_services service-1 rule 10.244.0.2\n"
        "add rule inet corral_services service-1 rule 10.244.0.3\n"
        "add element inet corral_services hairpin4 {\n"
        "\t10.244.0.3 . 10.244.0.3\n}\n"
    )


def test_unchanged_services_write_nothing():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2")})
    assert one.change({WEB: leading_to("10.244.0.2")}) == ""
    assert one.change({API: NO_RULES}) == ""


def test_the_last_endpoint_is_removed():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2")})
    assert one.change({WEB: ServiceRules(elements={SLOT: Claim(0, "goto refuse")})}) == (
        "delete element inet corral_services services4 {\n"
        "\t10.96.0.9 . tcp . 80 : goto service-1\n}\n"
        "delete element inet corral_services hairpin4 {\n"
        "\t10.244.0.2 . 10.244.0.2\n}\n"
        "add element inet corral_services services4 {\n"
        "\t10.96.0.9 . tcp . 80 : goto refuse\n}\n"
        "flush chain inet corral_services service-1\n"
        "delete chain inet corral_services service-1\n"
    )


def test_a_deleted_service_leaves_nothing():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2")})
    assert "delete chain inet corral_services service-1" in one.change({WEB: NO_RULES})
    assert one.full_transaction() == FRAME


def test_sets_are_added_before_their_rules_and_removed_after():
    one = rules()
    sticky = ServiceRules(
        chains={"service-1": ("ip saddr @c goto e",), "e": ("to",)}, sets={"c": "type"}
    )
    said = one.change({WEB: sticky}).splitlines()
    assert said[0] == "add set inet corral_services c { type }"
    assert said[1:3] == [f"add chain inet corral_services {name}" for name in ("service-1", "e")]
    assert one.change({WEB: NO_RULES}).splitlines()[-1] == "delete set inet corral_services c"


def test_a_conflicting_address_belongs_to_the_service_that_was_allocated_it():
    one = rules()
    named = ServiceRules(elements={SLOT: Claim(1, "goto service-2")})
    one.change({API: named})
    assert "goto service-2" in one.full_transaction()
    said = one.change({WEB: leading_to("10.244.0.2")})
    assert "\t10.96.0.9 . tcp . 80 : goto service-2\n" in said
    assert "goto service-2" not in one.full_transaction()
    one.change({WEB: NO_RULES})
    assert "goto service-2" in one.full_transaction()


def test_of_equal_services_the_first_by_name_gets_the_address():
    for order in ((WEB, API), (API, WEB)):
        one = rules()
        for key in order:
            part = ServiceRules(elements={SLOT: Claim(1, f"goto service-{key.name}")})
            one.change({key: part})
        assert "goto service-api" in one.full_transaction()
        assert "goto service-web" not in one.full_transaction()


def test_a_shared_endpoint_keeps_its_masquerade_rule():
    one = rules()
    one.change({WEB: leading_to("10.244.0.2"), API: leading_to("10.244.0.2", rank=1)})
    assert "hairpin4" not in one.change({API: NO_RULES})


def test_large_changes_are_written_in_steps():
    one = rules()
    for number in range(300):
        backends = [f"10.244.{number}.{each}" for each in range(10)]
        part = leading_to(*backends)
        name = f"service-{number}"
        chains = {name: part.chains["service-1"]}
        slot = ElementKey("services4", f"10.96.{number}.9 . tcp . 80")
        elements = {**part.elements, slot: Claim(0, f"goto {name}")}
        one.change({Key("default", f"s{number}"): ServiceRules(chains=chains, elements=elements)})
    first, *steps, last = one.split_transactions()
    assert len(steps) > 1
    assert all(len(step) <= TRANSACTION_CHARACTERS for step in (first, *steps))
    silence = "flush chain inet corral_services refuse\nadd rule inet corral_services refuse drop\n"
    assert first.startswith(FRAME + silence)
    full_transaction = "".join([first.replace(silence, ""), *steps])
    assert full_transaction == one.full_transaction()
    assert last == (
        "flush chain inet corral_services refuse\n"
        "add rule inet corral_services refuse meta l4proto tcp reject with tcp reset\n"
        "add rule inet corral_services refuse reject with icmpx port-unreachable\n"
    )
