"""Tests of what services are given, and of what is taken at any moment."""

import asyncio
import random
from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.server.conftest import MERGE, SERVICES, Asker

from corral.api.errors import InternalError
from corral.server.admission.service_allocation import (
    ADDRESS_BAND,
    PORT_BAND,
    ServiceRanges,
    pick,
    usable,
)
from corral.server.app import ApiServer
from corral.store import Log, Store

STATUS = f"{SERVICES}/web/status"
TINY = ServiceRanges(networks=(ip_network("10.0.0.0/29"),), node_ports=range(30000, 30006))
DUAL = ServiceRanges(networks=(ip_network("10.0.0.0/24"), ip_network("fd00::/112")))
PORT = {"port": 80}


async def server(ranges, store=None):
    """An administrator's way to a server with these ranges."""
    ask = Asker(ApiServer(store or Store.in_memory(), services=ranges))
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    return ask


@pytest.fixture
async def tiny():
    ask = await server(TINY)
    yield ask
    await ask.server.store.close()


@pytest.fixture
async def dual():
    ask = await server(DUAL)
    yield ask
    await ask.server.store.close()


async def make(ask, name="web", **spec):
    answer = await ask(
        "POST", SERVICES, {"metadata": {"name": name}, "spec": {"ports": [PORT], **spec}}
    )
    assert answer.status == 201, answer.text
    return answer["spec"]


async def refused(ask, name="web", **spec):
    body = {"metadata": {"name": name}, "spec": {"ports": [PORT], **spec}}
    answer = await ask("POST", SERVICES, body)
    assert answer.status == 422, answer.text
    return answer["message"].partition("is invalid: ")[2]


# --------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("network", "first", "last"),
    [
        ("10.96.0.0/12", "10.96.0.1", "10.111.255.254"),
        ("10.0.0.0/29", "10.0.0.1", "10.0.0.6"),
        ("fd00::/112", "fd00::1", "fd00::ffff"),
    ],
)
def test_usable_addresses_of_a_network(network, first, last):
    numbers = usable(ip_network(network))
    assert (ip_address(numbers[0]), ip_address(numbers[-1])) == (
        ip_address(first),
        ip_address(last),
    )


def test_ranges_of_any_size_are_usable():
    assert pick(usable(ip_network("fd00::/8")), set(), 256, random.Random(1)) is not None


@pytest.mark.parametrize("networks", [(), (ip_network("10.0.0.0/24"), ip_network("10.0.1.0/24"))])
def test_each_family_has_one_range(networks):
    with pytest.raises(ValueError, match="one range of addresses for each family"):
        ServiceRanges(networks=networks)


@pytest.mark.parametrize(
    ("band", "numbers", "size"),
    [
        (ADDRESS_BAND, 16, 0),
        (ADDRESS_BAND, 256, 16),
        (ADDRESS_BAND, 1024, 64),
        (ADDRESS_BAND, 1 << 20, 256),
        (PORT_BAND, 2768, 86),
        (PORT_BAND, 16, 0),
        (PORT_BAND, 1 << 16, 128),
    ],
)
def test_sizes_of_the_static_band(band, numbers, size):
    assert band.size(numbers) == size


@given(st.integers(1, 40), st.sets(st.integers(0, 39)), st.integers(0, 40), st.integers())
def test_a_free_number_of_the_upper_band_is_picked_first(size, taken, band, seed):
    numbers = range(size)
    found = pick(numbers, taken, band, random.Random(seed))
    free = set(numbers) - taken
    if not free:
        assert found is None
    else:
        assert found in ({number for number in free if number >= band} or free)


# ------------------------------------------------------------------ addresses


async def test_an_exhausted_range_is_an_error_until_an_address_is_released(tiny):
    given_out = {(await make(tiny, f"s{n}"))["clusterIP"] for n in range(6)}
    assert given_out == {f"10.0.0.{n}" for n in range(1, 7)}
    full = await tiny("POST", SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [PORT]}})
    assert (full.status, full["reason"]) == (500, "InternalError")
    assert full["message"] == (
        "Internal error occurred: failed to allocate a serviceIP: range is full"
    )
    await make(tiny, "headless", clusterIP="None")
    gone = await tiny("DELETE", f"{SERVICES}/s3")
    assert (await make(tiny))["clusterIP"] == gone["spec"]["clusterIP"]


async def test_a_requested_address_is_allocated(ask):
    assert (await make(ask, "dns", clusterIP="10.96.0.10"))["clusterIPs"] == ["10.96.0.10"]
    assert await refused(ask, clusterIP="10.96.0.10") == (
        'spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: '
        "provided IP is already allocated"
    )


@pytest.mark.parametrize("address", ["10.95.255.255", "10.96.0.0", "10.111.255.255", "192.0.2.1"])
async def test_addresses_outside_the_range_are_rejected(ask, address):
    assert await refused(ask, clusterIP=address) == (
        f'spec.clusterIPs: Invalid value: ["{address}"]: failed to allocate IP {address}: the '
        f"provided IP ({address}) is not in the valid range. The range of valid IPs is "
        "10.96.0.0/12"
    )


async def test_dynamic_addresses_leave_the_static_band_free(ask):
    made = [ip_address((await make(ask, f"s{n}"))["clusterIP"]) for n in range(40)]
    assert min(made) > ip_address("10.96.1.0")
    assert len(set(made)) == 40


async def test_a_dry_run_allocates_nothing(tiny):
    for _ in range(8):
        body = {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [PORT]}}
        tried = await tiny("POST", f"{SERVICES}?dryRun=All", body)
        assert tried["spec"]["clusterIP"].startswith("10.0.0.")
        assert tried["spec"]["ports"][0]["nodePort"] in TINY.node_ports
    await make(tiny, clusterIP=tried["spec"]["clusterIP"])


async def test_a_rejected_service_allocates_nothing(tiny):
    for _ in range(8):
        assert "externalName" not in await refused(tiny, externalTrafficPolicy="Local")
    assert await make(tiny)


async def test_a_second_service_of_a_name_already_exists(ask):
    await make(ask, clusterIP="10.96.0.10")
    body = {"metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.10", "ports": [PORT]}}
    assert (await ask("POST", SERVICES, body))["reason"] == "AlreadyExists"


async def test_concurrent_services_get_different_addresses(tiny):
    bodies = [{"metadata": {"name": f"s{n}"}, "spec": {"ports": [PORT]}} for n in range(9)]
    answers = await asyncio.gather(*(tiny("POST", SERVICES, body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [201] * 6 + [500] * 3
    made = [answer["spec"]["clusterIP"] for answer in answers if answer.status == 201]
    assert len(set(made)) == 6


async def test_a_service_changed_to_external_name_releases_its_address(tiny):
    address = (await make(tiny, type="NodePort"))["clusterIP"]
    away = await tiny.patch(
        f"{SERVICES}/web", {"spec": {"type": "ExternalName", "externalName": "example.com"}}
    )
    assert "clusterIP" not in away["spec"]
    await make(tiny, "other", clusterIP=address)
    back = await tiny.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})
    assert back["spec"]["clusterIP"] not in ("", address)


async def test_allocations_are_known_after_a_restart():
    log = Log(None)
    log.close, close = (lambda: None), log.close
    store = Store(log, threaded=False)
    ask = await server(TINY, store)
    await make(ask, clusterIP="10.0.0.3")
    await store.close()
    again = Store(log, threaded=False)
    ask = await server(TINY, again)
    assert "already allocated" in await refused(ask, "other", clusterIP="10.0.0.3")
    assert len({(await make(ask, f"s{n}"))["clusterIP"] for n in range(5)} | {"10.0.0.3"}) == 6
    await again.close()
    close()


# ------------------------------------------------------------------- families


async def test_a_service_is_single_stack_by_default(dual):
    one = await make(dual, "one")
    assert (one["ipFamilyPolicy"], one["ipFamilies"]) == ("SingleStack", ["IPv4"])
    two = await make(dual, "two", ipFamilyPolicy="PreferDualStack")
    assert two["ipFamilies"] == ["IPv4", "IPv6"]
    assert [ip_address(each).version for each in two["clusterIPs"]] == [4, 6]
    assert two["clusterIP"] == two["clusterIPs"][0]
    six = await make(dual, "six", ipFamilies=["IPv6"], ipFamilyPolicy="RequireDualStack")
    assert six["ipFamilies"] == ["IPv6", "IPv4"]
    assert six["clusterIP"].startswith("fd00::")


async def test_families_follow_from_requested_addresses(dual):
    spec = await make(dual, clusterIPs=["fd00::7"], clusterIP="fd00::7")
    assert spec["ipFamilies"] == ["IPv6"]
    assert await refused(dual, "two", clusterIP="10.0.0.9", clusterIPs=["10.0.0.9", "fd00::9"]) == (
        "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or "
        "'PreferDualStack' when multiple cluster IPs are specified"
    )


async def test_the_second_family_follows_the_ip_family_policy(dual):
    first = (await make(dual))["clusterIP"]
    both = await dual.patch(f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})
    assert both["spec"]["clusterIPs"][0] == first
    assert both["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    fewer = {"clusterIPs": [first], "ipFamilies": ["IPv4"]}
    stuck = await dual.patch(f"{SERVICES}/web", {"spec": fewer})
    assert "must be 'SingleStack' to release the secondary cluster IP" in stuck["message"]
    assert "must be 'SingleStack' to release the secondary IP family" in stuck["message"]
    alone = await dual.patch(f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "SingleStack"}})
    assert (alone["spec"]["clusterIPs"], alone["spec"]["ipFamilies"]) == ([first], ["IPv4"])
    await make(dual, "other", clusterIP=both["spec"]["clusterIPs"][1])


async def test_unconfigured_families_are_rejected(ask):
    assert await refused(ask, ipFamilyPolicy="RequireDualStack") == (
        'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured '
        "for dual-stack services"
    )
    assert await refused(ask, ipFamilies=["IPv6"]) == (
        'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'
    )
    assert await refused(ask, clusterIP="fd00::1") == (
        'spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster'
    )
    spec = await make(ask, ipFamilyPolicy="PreferDualStack")
    assert spec["ipFamilies"] == ["IPv4"]


async def test_a_headless_service_without_selector_can_have_any_family(ask):
    spec = await make(ask, "anyones", clusterIP="None")
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])
    spec = await make(ask, "ours", clusterIP="None", selector={"a": "b"})
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == ("SingleStack", ["IPv4"])


async def test_a_cluster_that_gets_a_second_family_changes_no_service():
    log = Log(None)
    log.close, close = (lambda: None), log.close
    store = Store(log, threaded=False)
    ask = await server(ServiceRanges(networks=DUAL.networks[:1]), store)
    before = await make(ask, ipFamilyPolicy="PreferDualStack")
    await store.close()
    again = Store(log, threaded=False)
    ask = await server(DUAL, again)
    after = await ask.patch(f"{SERVICES}/web", {"spec": {"selector": {"a": "b"}}})
    assert after["spec"] == before | {"selector": {"a": "b"}}
    await again.close()
    close()


# ---------------------------------------------------------------------- ports


def port(number, protocol="TCP", **fields):
    return {"name": f"{protocol.lower()}-{number}", "port": number, "protocol": protocol, **fields}


async def test_exhausted_node_ports_are_an_error(tiny):
    made = [await make(tiny, f"s{n}", type="NodePort") for n in range(5)]
    assert {spec["ports"][0]["nodePort"] for spec in made} <= set(TINY.node_ports)
    two = {"type": "NodePort", "ports": [port(1), port(2)]}
    full = await tiny("POST", SERVICES, {"metadata": {"name": "web"}, "spec": two})
    assert full["message"] == (
        "Internal error occurred: failed to allocate a nodePort: range is full"
    )


async def test_protocols_of_one_port_share_a_node_port(ask):
    ports = [port(53), port(54), port(53, "UDP")]
    numbers = [
        each["nodePort"] for each in (await make(ask, type="NodePort", ports=ports))["ports"]
    ]
    assert numbers[0] == numbers[2] != numbers[1]
    given_one = [port(53), port(53, "UDP", nodePort=31053)]
    spec = await make(ask, "other", type="NodePort", ports=given_one)
    assert [each["nodePort"] for each in spec["ports"]] == [31053, 31053]


@pytest.mark.parametrize("number", [1, 29999, 32768])
async def test_node_ports_outside_the_range_are_rejected(ask, number):
    message = await refused(ask, type="NodePort", ports=[port(80, nodePort=number)])
    assert message == (
        f"spec.ports[0].nodePort: Invalid value: {number}: provided port is not in the valid "
        "range. The range of valid ports is 30000-32767"
    )


async def test_a_node_port_of_another_service_is_rejected(ask):
    await make(ask, type="NodePort", ports=[port(80, nodePort=30080)])
    message = await refused(ask, "b", type="NodePort", ports=[port(80, "UDP", nodePort=30080)])
    assert message == (
        "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    )
    await ask.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})
    await make(ask, "b", type="NodePort", ports=[port(80, "UDP", nodePort=30080)])


async def test_a_load_balancer_can_have_no_node_ports(ask):
    spec = await make(
        ask, type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=[port(80)]
    )
    assert "nodePort" not in spec["ports"][0]
    chosen = [port(80, nodePort=30080), port(81)]
    spec = await make(
        ask, "b", type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=chosen
    )
    assert [each.get("nodePort") for each in spec["ports"]] == [30080, None]


async def test_external_traffic_policy_local_needs_a_health_check_port(ask):
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    spec = await make(ask, **local)
    assert spec["healthCheckNodePort"] not in (None, spec["ports"][0]["nodePort"])
    taken = await refused(ask, "b", **local, healthCheckNodePort=spec["healthCheckNodePort"])
    assert taken.endswith("provided port is already allocated")
    assert "not in the valid range" in await refused(ask, "b", **local, healthCheckNodePort=5)
    own = [port(80, nodePort=30500)]
    assert "already allocated" in await refused(
        ask, "b", **local, ports=own, healthCheckNodePort=30500
    )
    moved = await ask.patch(f"{SERVICES}/web", {"spec": {"healthCheckNodePort": 30501}})
    assert moved["message"].endswith(
        "spec.healthCheckNodePort: Invalid value: 30501: field is immutable"
    )
    same = await ask.patch(f"{SERVICES}/web", {"spec": {"healthCheckNodePort": None}})
    assert same["spec"] == spec
    freed = await ask.patch(f"{SERVICES}/web", {"spec": {"externalTrafficPolicy": "Cluster"}})
    assert "healthCheckNodePort" not in freed["spec"]


async def test_a_status_update_allocates_nothing(ask):
    before = await make(ask, type="LoadBalancer")
    ingress = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
    node = ask.as_user("system:node:one", "system:nodes")
    updated = await node.patch(STATUS, {"status": ingress})
    assert updated["spec"] == before
    assert updated["status"]["loadBalancer"]["ingress"] == [{"ip": "127.0.0.1", "ipMode": "VIP"}]
    assert (await node.patch(f"{SERVICES}/web", {"spec": {}})).status == 403


# ---------------------------------------------------------------------- model

ADDRESSES = st.sampled_from(["", "10.0.0.1", "10.0.0.2", "10.0.0.3", "None"])
NAMES = st.sampled_from(["a", "b", "c", "d"])
TYPES = st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"])
NODE_PORTS = st.sampled_from([None, 30000, 30001, 30002])


class FailingLog(Log):
    """A log in memory that fails when a test says so."""

    failing = False

    def append(self, rows, forget, compacted):
        if self.failing:
            raise InternalError("disk I/O error")
        super().append(rows, forget, compacted)


class Services(RuleBasedStateMachine):
    """Any mix of requests, several at a time, and a disk that fails.

    Nothing is given twice, and nothing is lost.
    """

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.log = FailingLog(None)
        self.store = Store(self.log, threaded=False)
        self.ask = self.runner.run(server(TINY, self.store))

    def teardown(self):
        self.log.failing = False
        self.runner.run(self.store.close())
        self.runner.close()

    @rule(
        requests=st.lists(
            st.one_of(
                st.tuples(st.just("POST"), NAMES, TYPES, ADDRESSES, NODE_PORTS),
                st.tuples(st.just("PATCH"), NAMES, TYPES, ADDRESSES, NODE_PORTS),
                st.tuples(st.just("DELETE"), NAMES),
            ),
            min_size=1,
            max_size=5,
        ),
        failing=st.booleans(),
    )
    def together(self, requests, failing):
        self.log.failing = failing

        async def send():
            return await asyncio.gather(*(self.send(*request) for request in requests))

        for answer in self.runner.run(send()):
            full = "range is full" in answer.text
            assert answer.status < 500 or failing or (full and not self.free()), answer.text
        self.log.failing = False

    async def send(self, method, name, kind="", address="", node_port=None):
        spec = {"type": kind, "externalName": "example.com", "ports": [port(80)]}
        if address:
            spec["clusterIP"] = address
        if node_port:
            spec["ports"][0]["nodePort"] = node_port
        if method == "DELETE":
            return await self.ask("DELETE", f"{SERVICES}/{name}")
        body = {"metadata": {"name": name}, "spec": spec}
        if method == "POST":
            return await self.ask("POST", SERVICES, body)
        return await self.ask("PATCH", f"{SERVICES}/{name}", body, MERGE)

    def held(self):
        specs = [record.document()["spec"] for record in self.store.objects("services")]
        addresses = [each for spec in specs for each in spec.get("clusterIPs", ())]
        ports = {
            (number, spec["clusterIPs"][0])
            for spec in specs
            if spec["type"] != "ExternalName"
            for number in [*(each.get("nodePort") for each in spec["ports"])]
            if number
        }
        return [each for each in addresses if each != "None"], sorted(ports)

    def free(self):
        """Four services never fill the ranges, so nothing may ever be said to be full."""
        addresses, ports = self.held()
        return len(addresses) < 6 and len(ports) < 6

    @invariant()
    def nothing_is_given_twice(self):
        addresses, ports = self.held()
        assert len(set(addresses)) == len(addresses)
        assert all(one != other for (one, _), (other, _) in pairwise(ports))

    @invariant()
    def nothing_is_lost(self):
        """Every address that no service has can be had."""
        addresses, _ = self.held()

        async def try_all():
            free = {f"10.0.0.{n}" for n in range(1, 7)} - set(addresses)
            for address in free:
                body = {"metadata": {"name": "z"}, "spec": {"ports": [PORT], "clusterIP": address}}
                answer = await self.ask("POST", f"{SERVICES}?dryRun=All", body)
                assert answer.status == 201, answer.text

        self.runner.run(try_all())


TestServices = Services.TestCase
TestServices.settings = settings(max_examples=20, stateful_step_count=10)
