"""The packet filter's rules for policies, as text, and what is said when something changes."""

import re
from ipaddress import ip_network
from textwrap import dedent

import msgspec
from hypothesis import given, settings, strategies as st
from lightkube.models.networking_v1 import NetworkPolicy

from corral.api.object import Key
from corral.node.network_policy.nft_table import Table
from corral.node.network_policy.parsed_policy import PodInfo, PortName, parse_policy

PODS = [ip_network("10.244.0.0/16")]
WEB = {"matchLabels": {"app": "web"}}


def policy(spec, name="p"):
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return parse_policy(msgspec.convert(document, NetworkPolicy))


def member(address, *, port=8080, **labels):
    return PodInfo("default", labels, (address,), ((PortName("tcp", "http"), port),))


def key(name):
    return Key("default", name)


def readable(text):
    """The text with short names in the places of digests."""
    found = dict.fromkeys(re.findall(r"[0-9a-f]{16}", text))
    for number, digest in enumerate(found, 1):
        text = text.replace(digest, f"#{number}")
    return re.sub(r"^(\w+ \w+) inet corral_policy ", r"\1 ", text, flags=re.MULTILINE)


def test_the_table_of_a_policy():
    table = Table(PODS)
    rule = {
        "from": [
            {"podSelector": {"matchLabels": {"app": "client"}}},
            {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.64/26"]}},
        ],
        "ports": [
            {"port": 80},
            {"port": 81, "endPort": 90},
            {"port": 53, "protocol": "UDP"},
            {"port": "http"},
        ],
    }
    table.change(
        policies={key("web"): policy({"podSelector": WEB, "ingress": [rule]})},
        pod_infos={
            key("a"): member("10.244.0.5", app="web"),
            key("b"): member("10.244.0.6", app="client", port=9090),
        },
    )
    assert readable(table.full_transaction()) == dedent(
        """\
        table inet corral_policy
        delete table inet corral_policy
        table inet corral_policy {
          set self4 { type ipv4_addr . ipv4_addr; }
          map egress4 { type ipv4_addr : verdict; }
          map ingress4 { type ipv4_addr : verdict; }
          chain egress {
            type filter hook forward priority filter; policy accept;
            ct state established ct direction reply accept
            ct state related accept
            ip saddr . ip daddr @self4 accept
            ip saddr vmap @egress4
            ip saddr 10.244.0.0/16 drop
          }
          chain ingress {
            type filter hook forward priority filter + 1; policy accept;
            ct state established ct direction reply accept
            ct state related accept
            iifname "host" accept
            ip saddr . ip daddr @self4 accept
            ip daddr vmap @ingress4
            ip daddr 10.244.0.0/16 drop
          }
        }
        add set ingress-#1-0-blocks4 { type ipv4_addr; flags interval; \
elements = { 192.0.2.0-192.0.2.63, 192.0.2.128-192.0.2.255 }; }
        add set ingress-#1-0-pods4 { type ipv4_addr; }
        add set ingress-#1-0-ports4 { type ipv4_addr . inet_proto . inet_service; }
        add chain ingress-#1
        add chain ingress-of-#2
        add rule ingress-#1 ip saddr @ingress-#1-0-pods4 tcp dport { 80-90 } accept
        add rule ingress-#1 ip saddr @ingress-#1-0-pods4 udp dport { 53 } accept
        add rule ingress-#1 ip saddr @ingress-#1-0-pods4 \
ip daddr . meta l4proto . th dport @ingress-#1-0-ports4 accept
        add rule ingress-#1 ip saddr @ingress-#1-0-blocks4 tcp dport { 80-90 } accept
        add rule ingress-#1 ip saddr @ingress-#1-0-blocks4 udp dport { 53 } accept
        add rule ingress-#1 ip saddr @ingress-#1-0-blocks4 \
ip daddr . meta l4proto . th dport @ingress-#1-0-ports4 accept
        add rule ingress-of-#2 jump ingress-#1
        add rule ingress-of-#2 drop
        add element egress4 { 10.244.0.5 : accept, 10.244.0.6 : accept }
        add element ingress-#1-0-pods4 { 10.244.0.6 }
        add element ingress-#1-0-ports4 { 10.244.0.5 . tcp . 8080, 10.244.0.6 . tcp . 9090 }
        add element ingress4 { 10.244.0.5 : jump ingress-of-#2, 10.244.0.6 : accept }
        add element self4 { 10.244.0.5 . 10.244.0.5, 10.244.0.6 . 10.244.0.6 }
        """
    )


def test_rules_without_peers_or_ports_match_all():
    table = Table([*PODS, ip_network("fd00:10:244::/56")])
    everything = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    text = table.change(
        policies={
            key("open"): policy(everything | {"ingress": [{}]}),
            key("tcp"): policy(everything | {"ingress": [{"ports": [{"protocol": "TCP"}]}]}, "t"),
        }
    )
    rules = [line.split(" ", 4)[4] for line in text.splitlines() if line.startswith("add rule")]
    assert sorted(line.split(" ", 1)[1] for line in rules) == [
        "meta nfproto ipv4 accept",
        "meta nfproto ipv4 meta l4proto tcp accept",
        "meta nfproto ipv6 accept",
        "meta nfproto ipv6 meta l4proto tcp accept",
    ]


def test_added_and_removed_pods_change_elements_only():
    table = Table(PODS)
    peers = [{"podSelector": {"matchLabels": {"app": "client"}}}]
    table.change(
        policies={key("web"): policy({"podSelector": WEB, "ingress": [{"from": peers}]})},
        pod_infos={key("a"): member("10.244.0.5", app="web")},
    )
    came = readable(table.change(pod_infos={key("b"): member("10.244.0.6", app="client")}))
    assert came == dedent(
        """\
        add element egress4 { 10.244.0.6 : accept }
        add element ingress-#1-0-pods4 { 10.244.0.6 }
        add element ingress4 { 10.244.0.6 : accept }
        add element self4 { 10.244.0.6 . 10.244.0.6 }
        """
    )
    went = readable(table.change(pod_infos={key("b"): None}))
    assert went == came.replace("add", "delete")
    assert table.change(pod_infos={key("b"): None}) == ""


def test_a_changed_label_moves_a_pod_to_another_verdict():
    table = Table(PODS)
    table.change(
        policies={key("web"): policy({"podSelector": WEB})},
        pod_infos={key("a"): member("10.244.0.5"), key("b"): member("10.244.0.6", app="web")},
    )
    assert readable(table.change(pod_infos={key("a"): member("10.244.0.5", app="web")})) == dedent(
        """\
        delete element ingress4 { 10.244.0.5 : accept }
        add element ingress4 { 10.244.0.5 : jump ingress-of-#1 }
        """
    )


def test_a_namespace_that_changes_its_labels_changes_peers():
    table = Table(PODS)
    peers = [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]
    table.change(
        policies={key("web"): policy({"podSelector": WEB, "ingress": [{"from": peers}]})},
        pod_infos={key("a"): member("10.244.0.5")},
    )
    text = table.change(namespaces={"default": {"team": "a"}})
    assert readable(text) == "add element ingress-#1-0-pods4 { 10.244.0.5 }\n"


def test_a_deleted_policy_leaves_nothing():
    table = Table(PODS)
    pod_infos = {key("a"): member("10.244.0.5", app="web")}
    table.change(pod_infos=pod_infos)
    bare = table.full_transaction()
    table.change(policies={key("p"): policy({"podSelector": WEB, "ingress": [{}]})})
    text = readable(table.change(policies={key("p"): None}))
    assert text == dedent(
        """\
        delete element ingress4 { 10.244.0.5 : jump ingress-of-#1 }
        add element ingress4 { 10.244.0.5 : accept }
        flush chain ingress-#2
        flush chain ingress-of-#1
        delete chain ingress-#2
        delete chain ingress-of-#1
        """
    )
    assert table.full_transaction() == bare


def test_a_reused_address_belongs_to_the_later_pod():
    table, fresh = Table(PODS), Table(PODS)
    table.change(pod_infos={key("old"): member("10.244.0.5", app="web")})
    table.change(pod_infos={key("new"): member("10.244.0.5", app="client")})
    assert table.change(pod_infos={key("old"): member("10.244.0.5", app="other")}) == ""
    assert table.change(pod_infos={key("old"): None}) == ""
    fresh.change(pod_infos={key("new"): member("10.244.0.5", app="client")})
    assert table.full_transaction() == fresh.full_transaction()


def test_an_address_falls_back_to_the_remaining_pod():
    table = Table(PODS)
    table.change(policies={key("p"): policy({"podSelector": WEB, "ingress": [{}]})})
    table.change(pod_infos={key("a"): member("10.244.0.5", app="web")})
    before = table.full_transaction()
    table.change(pod_infos={key("b"): member("10.244.0.5", app="client")})
    table.change(pod_infos={key("b"): None})
    assert table.full_transaction() == before


def test_an_address_belongs_to_the_pod_that_reported_it_last():
    table = Table(PODS)
    table.change(
        policies={key("web"): policy({"podSelector": WEB})},
        pod_infos={key("old"): member("10.244.0.5")},
    )
    table.change(pod_infos={key("new"): member("10.244.0.5", app="web")})
    before = table.full_transaction()
    assert before.count("10.244.0.5 :") == 2
    assert "10.244.0.5 : jump" in before
    assert table.change(pod_infos={key("old"): None}) == ""
    assert table.full_transaction() == before


names = st.sampled_from(["a", "b", "c", "d"])
people = st.one_of(
    st.none(),
    st.builds(
        lambda last, labels: member(f"10.244.0.{last}", **labels),
        st.integers(1, 3),
        st.sampled_from([{}, {"app": "web"}, {"app": "client"}]),
    ),
)
SPECS = [
    {"podSelector": {}},
    {"podSelector": WEB, "ingress": [{"from": [{"podSelector": WEB}]}]},
    {"podSelector": {}, "egress": [{"to": [{"namespaceSelector": WEB}]}]},
    {"podSelector": WEB, "ingress": [{"ports": [{"port": "http"}]}]},
]
papers = st.one_of(st.none(), st.sampled_from(SPECS))
steps = st.one_of(
    st.tuples(st.just("pod_infos"), names, people),
    st.tuples(st.just("policies"), names, papers),
    st.tuples(st.just("namespaces"), st.just("default"), st.sampled_from([{}, {"app": "web"}])),
)


class Kernel:
    """As much of a packet filter as has to be, to see whether changes add up."""

    def __init__(self):
        self.sets, self.chains = {}, {}

    def apply(self, text):
        for line in text.splitlines():
            verb, what, _, _, name, *rest = line.split(" ")
            words = " ".join(rest)
            getattr(self, f"{verb}_{what}")(name, words)

    def add_set(self, name, words):
        assert name not in self.sets
        self.sets[name] = set()

    def add_chain(self, name, words):
        assert name not in self.chains
        self.chains[name] = []

    def add_rule(self, name, words):
        used = re.findall(r"@(\S+)", words)
        assert all(one in self.sets for one in used)
        jumps = re.findall(r"jump (\S+)", words)
        assert all(one in self.chains for one in jumps)
        self.chains[name].append(words)

    def add_element(self, name, words):
        elements = words.strip("{} ").split(", ")
        known = {one.split(" : ")[0] for one in self.sets.setdefault(name, set())}
        assert not known & {one.split(" : ")[0] for one in elements}
        assert all(one in self.chains for one in re.findall(r"jump ([\w-]+)", words))
        self.sets[name].update(elements)

    def delete_element(self, name, words):
        elements = set(words.strip("{} ").split(", "))
        assert elements <= self.sets[name]
        self.sets[name] -= elements

    def flush_chain(self, name, words):
        self.chains[name] = []

    def delete_chain(self, name, words):
        used = str([*self.chains.values(), *self.sets.values()])
        assert f"jump {name}'" not in used
        del self.chains[name]

    def delete_set(self, name, words):
        assert f"@{name} " not in str(self.chains)
        del self.sets[name]


@settings(max_examples=200)
@given(st.lists(steps, max_size=25))
def test_incremental_changes_equal_the_whole_table(changes):
    table, kernel = Table(PODS), Kernel()
    for what, name, value in changes:
        is_policy = what == "policies" and value is not None
        place = name if what == "namespaces" else key(name)
        new = policy(value, name) if is_policy else value
        kernel.apply(table.change(**{what: {place: new}}))
    fresh = Kernel()
    fresh.apply(table.full_transaction().split("\n}\n", 1)[1])
    assert kernel.chains == fresh.chains
    filled = {name: value for name, value in kernel.sets.items() if value}
    assert filled == {name: value for name, value in fresh.sets.items() if value}
