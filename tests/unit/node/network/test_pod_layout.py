"""The layout of a pod's namespace, compared as values and as text."""

from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.network import antispoof
from corral.node.network.pod_layout import (
    PodNetworkSettings,
    families,
    interface_of,
    link_name,
    plan,
)

UID = "0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c"
POD, POD6 = ip_address("10.244.0.7"), ip_address("fd00:10:244::7")
GATEWAY, GATEWAY6 = ip_address("10.244.0.1"), ip_address("fd00:10:244::1")
NIC_MAC = "02:aa:aa:aa:aa:aa"
SITE = PodNetworkSettings(
    gateways=(GATEWAY, GATEWAY6),
    ranges=(ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")),
    dns=(ip_address("10.96.0.10"), ip_address("fd00:10:96::a")),
)


def vmi(interface=None, pod=None, **spec) -> VirtualMachineInstance:
    """An instance with an interface; none at all where that is empty."""
    whole = {"name": "default", "macAddress": NIC_MAC, **({"masquerade": {}} | (interface or {}))}
    if interface is not None and "bridge" in interface:
        del whole["masquerade"]
    document = {
        "metadata": {"name": "web-1", "namespace": "shop", "uid": UID},
        "spec": {
            "domain": {"devices": {"interfaces": [whole]}},
            "networks": [{"name": "default", "pod": pod or {}}],
            **spec,
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


def bare() -> VirtualMachineInstance:
    document = {"metadata": {"uid": UID}, "spec": {"domain": {"devices": {}}}}
    return msgspec.convert(document, VirtualMachineInstance)


def test_each_pod_is_a_host_behind_its_own_link():
    layout = plan(vmi(), [POD, POD6], SITE)
    outer, inner = layout.machine_end, layout.pod_end
    assert outer.name == link_name(UID)
    assert outer.routes == ((ip_network(POD), None), (ip_network(POD6), None))
    assert outer.neighbours == ((POD, inner.mac), (POD6, inner.mac))
    assert inner.name == "eth0"
    assert inner.addresses == (ip_interface(POD), ip_interface(POD6))
    assert inner.neighbours == ((GATEWAY, outer.mac), (GATEWAY6, outer.mac))
    assert inner.routes == (
        (ip_network(GATEWAY), None),
        (ip_network("0.0.0.0/0"), GATEWAY),
        (ip_network(GATEWAY6), None),
        (ip_network("::/0"), GATEWAY6),
    )


def test_link_names_are_unique_and_within_the_limit():
    names = {link_name(f"{number}") for number in range(1000)}
    assert len(names) == 1000
    assert all(len(name) == 15 and name.startswith(antispoof.LINK_PREFIX) for name in names)


def test_the_layout_of_a_vmi_is_deterministic():
    assert plan(vmi(), [POD], SITE) == plan(vmi(), [POD], SITE)


def test_masquerade_gives_the_guest_the_private_range():
    nic = plan(vmi(), [POD, POD6], SITE).nic
    assert nic.bridge.name == "k6t-eth0"
    assert nic.bridge.addresses == (IPv4Interface("10.0.2.1/24"), IPv6Interface("fd10:0:2::1/120"))
    assert nic.bridge.neighbours == (
        (ip_address("10.0.2.2"), NIC_MAC),
        (ip_address("fd10:0:2::2"), NIC_MAC),
    )
    assert not nic.joins_pod_link
    assert nic.dhcp_link.device == "k6t-eth0"
    assert nic.dhcp_link.router == nic.bridge.mac
    lease, lease6 = nic.dhcp_link.lease, nic.dhcp_link.lease6
    assert (lease.address, lease.server, lease.gateway) == (
        IPv4Interface("10.0.2.2/24"),
        ip_address("10.0.2.1"),
        ip_address("10.0.2.1"),
    )
    assert lease.dns == (ip_address("10.96.0.10"),)
    assert lease.hostname == "web-1"
    assert lease6.address == IPv6Interface("fd10:0:2::2/120")
    assert lease6.dns == (ip_address("fd00:10:96::a"),)


def test_masquerade_translates_both_ways():
    assert plan(vmi(), [POD, POD6], SITE).rules.endswith(
        """\
table inet corral_pod {
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "eth0" ip daddr 10.244.0.7 dnat ip to 10.0.2.2
    iifname "eth0" ip6 daddr fd00:10:244::7 dnat ip6 to fd10:0:2::2
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "eth0" ip saddr 10.0.2.2 snat ip to 10.244.0.7
    oifname "eth0" ip6 saddr fd10:0:2::2 snat ip6 to fd00:10:244::7
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "k6t-eth0" oifname != "eth0" drop
  }
}
"""
    )


def test_only_declared_ports_are_forwarded_to_the_guest():
    ports = [
        {"port": 443},
        {"port": 80, "protocol": "TCP"},
        {"port": 53, "protocol": "UDP"},
        {"name": "again", "port": 80},
    ]
    rules = plan(vmi({"ports": ports}), [POD], SITE).rules
    inward = [line.strip() for line in rules.splitlines() if "dnat" in line and "daddr" in line]
    assert inward == [
        'iifname "eth0" ip daddr 10.244.0.7 tcp flags & syn == 0x0 dnat ip to 10.0.2.2',
        'iifname "eth0" ip daddr 10.244.0.7 tcp dport { 80, 443 } dnat ip to 10.0.2.2',
        'iifname "eth0" ip daddr 10.244.0.7 udp dport { 53 } dnat ip to 10.0.2.2',
    ]
    assert 'oifname "eth0" ip saddr 10.0.2.2 snat ip to 10.244.0.7' in rules


def test_the_private_ranges_are_configurable():
    pod = {"vmNetworkCIDR": "192.168.7.0/25", "vmIPv6NetworkCIDR": "fd99::/112"}
    nic = plan(vmi(pod=pod), [POD, POD6], SITE).nic
    assert nic.bridge.addresses == (IPv4Interface("192.168.7.1/25"), IPv6Interface("fd99::1/112"))
    assert nic.dhcp_link.lease.address == IPv4Interface("192.168.7.2/25")
    assert nic.dhcp_link.lease6.address == IPv6Interface("fd99::2/112")


def test_a_bridged_guest_has_the_address_of_the_pod():
    layout = plan(vmi({"bridge": {}}), [POD], SITE)
    nic = layout.nic
    assert nic.joins_pod_link
    assert nic.bridge.addresses == layout.pod_end.addresses == layout.pod_end.routes == ()
    assert layout.machine_end.neighbours == ((POD, NIC_MAC),)
    assert nic.dhcp_link.lease.address == IPv4Interface("10.244.0.7/16")
    assert nic.dhcp_link.lease.gateway == GATEWAY
    assert nic.dhcp_link.lease6 is None
    assert "nat" not in layout.rules
    settings = dict(layout.machine_sysctls)
    assert settings[f"ipv4/conf/{layout.machine_end.name}/proxy_arp"] == 1
    assert settings[f"ipv4/neigh/{layout.machine_end.name}/proxy_delay"] == 0
    assert settings[f"ipv6/conf/{layout.machine_end.name}/disable_ipv6"] == 1


def test_only_masqueraded_guests_have_ipv6():
    assert families(vmi()) == (4, 6)
    assert families(bare()) == (4, 6)
    assert families(vmi({"bridge": {}})) == (4,)


@pytest.mark.parametrize("instance", [bare(), vmi({"state": "absent"})])
def test_a_pod_without_an_interface_has_an_address(instance):
    layout = plan(instance, [POD], SITE)
    assert interface_of(instance) is None
    assert layout.nic is None
    assert layout.rules == ""
    assert layout.pod_end.addresses == (ip_interface(POD),)


def test_a_guest_has_the_dns_settings_of_its_pod():
    cluster = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local")
    assert plan(vmi(), [POD], SITE).nic.dhcp_link.lease.search == cluster
    nic = plan(vmi(subdomain="head", hostname="one"), [POD], SITE).nic
    assert nic.dhcp_link.lease.search == ("head.shop.svc.cluster.local", *cluster)
    assert nic.dhcp_link.lease.hostname == "one"


def test_a_vmi_can_have_its_own_name_servers():
    config = {
        "nameservers": ["192.0.2.53", "2001:db8::53", "nonsense"],
        "searches": ["example.com"],
    }
    beside = plan(vmi(dnsConfig=config), [POD, POD6], SITE).nic.dhcp_link
    assert beside.lease.dns == (ip_address("10.96.0.10"), ip_address("192.0.2.53"))
    assert beside.lease6.dns == (ip_address("fd00:10:96::a"), ip_address("2001:db8::53"))
    assert beside.lease.search[-1] == "example.com"
    instead = plan(vmi(dnsPolicy="None", dnsConfig=config), [POD], SITE).nic.dhcp_link.lease
    assert instead.dns == (ip_address("192.0.2.53"),)
    assert instead.search == ("example.com",)


def test_dhcp_options_are_configured():
    options = {
        "bootFileName": "boot.img",
        "tftpServerName": "tftp",
        "ntpServers": ["192.0.2.1", "pool.ntp.org"],
        "privateOptions": [{"option": 240, "value": "x"}],
    }
    lease = plan(vmi({"dhcpOptions": options}), [POD], SITE).nic.dhcp_link.lease
    assert (lease.boot_file_name, lease.tftp_server_name) == ("boot.img", "tftp")
    assert lease.ntp_servers == (ip_address("192.0.2.1"),)
    assert lease.private_options == ((240, b"x"),)


def test_mac_addresses_have_the_format_of_the_kernel():
    nic = plan(vmi({"macAddress": "DE-AD-00-00-BE-AF"}), [POD], SITE).nic
    assert nic.dhcp_link.guest == "de:ad:00:00:be:af"
    made_up = plan(vmi({"macAddress": ""}), [POD], SITE).nic.dhcp_link.guest
    assert made_up.startswith("02:")
    assert made_up != plan(vmi({"macAddress": "", "name": "default"}), [POD], SITE).pod_end.mac


def test_the_guard_of_a_tap_allows_one_mac_address():
    assert (
        antispoof.nic_rules("tap0", NIC_MAC, [POD, POD6])
        == """\
table bridge corral_guard {
  chain prerouting {
    type filter hook prerouting priority filter; policy accept;
    iifname != "tap0" accept
    ether saddr != 02:aa:aa:aa:aa:aa drop
    arp saddr ether != 02:aa:aa:aa:aa:aa drop
    arp saddr ip != { 0.0.0.0, 10.244.0.7 } drop
    ip saddr != { 0.0.0.0, 10.244.0.7 } drop
    ip6 saddr != { ::, fe80::/10, fd00:10:244::7 } drop
    icmpv6 type { nd-router-advert, nd-redirect } drop
    icmp type redirect drop
    udp dport { 68, 546 } drop
    ip6 saddr fe80::/10 limit rate over 10/second burst 50 packets drop
    icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } \
limit rate over 50/second drop
  }
}
"""
    )


def test_existing_rules_are_replaced_atomically():
    layout = plan(vmi(), [POD], SITE)
    assert layout.replacement_rules == (
        "table inet corral_pod\ndelete table inet corral_pod\n"
        "table bridge corral_guard\ndelete table bridge corral_guard\n" + layout.rules
    )
