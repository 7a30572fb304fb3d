"""The ports of the host that lead to Services, and the events about them."""

from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from lightkube.models.core_v1 import Event, Service
from lightkube.models.meta_v1 import ObjectMeta
from tests.sim.cluster import cluster

from corral.api.object import Key
from corral.node.network.ingress import HostPort
from corral.node.proxy import host_ports
from corral.node.proxy.host_ports import HostPorts, plan, port_requests
from corral.reconcile.context import ControllerContext

HOST = ip_address("127.0.0.1")
MORNING, NOON = datetime(2026, 1, 1, 8, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)


def service(name, creation_time=NOON, kind="LoadBalancer", ports=((80, 30080),), **spec) -> Service:
    document = {
        "spec": {
            "type": kind,
            "clusterIP": "10.96.0.9",
            "ports": [{"name": f"p{port}", "port": port, "nodePort": node or None}
                      for port, node in ports],
            **spec,
        }
    }  # fmt: skip
    one = Service.from_dict(document)
    one.metadata = ObjectMeta(name=name, namespace="default", creationTimestamp=creation_time)
    return one


def port(number, protocol="tcp") -> HostPort:
    return HostPort(protocol, HOST, number)


def planned(*services):
    return plan(port_requests(services, HOST))


def test_a_node_port_is_the_same_on_the_host():
    assert planned(service("web", kind="NodePort")).ports == {port(30080): 30080}


def test_a_load_balancer_has_its_ports_and_its_node_ports():
    assert planned(service("web")).ports == {port(80): 30080, port(30080): 30080}


def test_a_load_balancer_without_node_ports_has_its_own_ports_only():
    assert planned(service("web", ports=((80, 0),))).ports == {port(80): 80}


@pytest.mark.parametrize(
    "one",
    [
        service("web", kind="ClusterIP"),
        service("web", loadBalancerClass="example.com/other", ports=((80, 0),)),
        service("web", clusterIP="fd00::9"),
        service("web", clusterIP="None"),
    ],
)
def test_other_services_have_no_host_ports(one):
    assert planned(one).ports == {}


def test_of_two_load_balancers_the_older_gets_the_port():
    young, old = service("a"), service("b", MORNING, ports=((80, 30081),))
    found = planned(young, old)
    assert found.ports[port(80)] == 30081
    ((request, why),) = found.refused.items()
    assert request.service == Key("default", "a")
    assert why == "the Service default/b has it"


def test_a_node_port_takes_precedence_over_a_load_balancers_port():
    found = planned(service("a", MORNING, ports=((30080, 30090),)), service("b", kind="NodePort"))
    assert found.ports == {port(30080): 30080, port(30090): 30090}


@pytest.mark.parametrize("ranges", [["10.0.0.0/8"], ["::/0"], [" 127.0.0.0/8 ", "10.0.0.0/8"]])
def test_a_load_balancer_with_source_ranges_is_closed(ranges):
    one, other = (
        service("a", MORNING, loadBalancerSourceRanges=ranges),
        service("b", ports=((80, 0),)),
    )
    found = planned(one, other)
    assert found.ports == {port(30080): 30080, port(80): 80}
    assert list(found.refused.values()) == [host_ports.SOURCE_RANGES_UNSUPPORTED]


def test_a_load_balancer_with_source_ranges_of_all_addresses_is_open():
    ranges = ["10.0.0.0/8", " 0.0.0.0/0 "]
    found = planned(service("web", loadBalancerSourceRanges=ranges))
    assert found.ports == {port(80): 30080, port(30080): 30080}


class PortForwarder:
    """Records the requested ports; refuses some."""

    def __init__(self) -> None:
        self.ports = {}
        self.refusing = {}

    async def set(self, ports):
        self.ports = dict(ports)
        return {host: why for host, why in self.refusing.items() if host in ports}


def document(name="web", **spec) -> dict:
    whole = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": whole}


@pytest.mark.looptime
async def test_the_status_has_the_ports_that_could_be_opened():
    async with cluster(nodes=0) as c:
        context = ControllerContext(c.component, clock=c.clock)
        port_forwarder = PortForwarder()
        port_forwarder.refusing[port(80)] = "another program has it"
        loop = HostPorts(context, port_forwarder, HOST)
        c._tasks.start(context.run(), name="context")
        c._tasks.start(loop.run(), name="ports")
        await c.client.create(Service, document())

        async def ingress():
            found = await c.client.get(Service, "web", "default")
            return (found.status.loadBalancer and found.status.loadBalancer.ingress) or []

        async def refused():
            return await c.events("web")

        await c.until(refused)
        (event,) = await c.events("web")
        assert event.reason == "SyncLoadBalancerFailed"
        assert event.message == (
            "Error syncing load balancer: tcp 127.0.0.1:80 cannot be forwarded: "
            "another program has it"
        )
        assert event.source.component == "service-controller"
        assert not await ingress()
        port_forwarder.refusing.clear()
        await c.until(ingress, host_ports.RETRY_SECONDS + 1)
        assert [each.ip for each in await ingress()] == ["127.0.0.1"]

        await c.client.patch(Service, Key("default", "web"), {"spec": {"type": "ClusterIP"}})

        async def is_closed():
            return not await ingress() and not port_forwarder.ports

        await c.until(is_closed)
        reasons = [each.reason for each in (await c.client.list(Event)).items]
        assert sorted(reasons) == ["EnsuredLoadBalancer", "SyncLoadBalancerFailed"]


@pytest.mark.looptime
async def test_a_load_balancer_with_source_ranges_reports_why_it_is_closed():
    async with cluster(nodes=0) as c:
        context = ControllerContext(c.component, clock=c.clock)
        port_forwarder = PortForwarder()
        c._tasks.start(context.run(), name="context")
        c._tasks.start(HostPorts(context, port_forwarder, HOST).run(), name="ports")
        await c.client.create(Service, document(loadBalancerSourceRanges=["10.0.0.0/8"]))

        async def events():
            return await c.events("web")

        await c.until(events)
        (event,) = await events()
        assert event.reason == "SyncLoadBalancerFailed"
        assert "spec.loadBalancerSourceRanges is not supported" in event.message
        found = await c.client.get(Service, "web", "default")
        assert not (found.status.loadBalancer and found.status.loadBalancer.ingress)
        assert port(80) not in port_forwarder.ports


@pytest.mark.looptime
async def test_each_failed_port_is_reported():
    async with cluster(nodes=0) as c:
        context = ControllerContext(c.component, clock=c.clock)
        port_forwarder = PortForwarder()
        port_forwarder.refusing[port(80)] = "another program has it"
        c._tasks.start(context.run(), name="context")
        c._tasks.start(HostPorts(context, port_forwarder, HOST).run(), name="ports")
        ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
        await c.client.create(Service, document(ports=ports))

        async def errors():
            found = await c.client.get(Service, "web", "default")
            ingress = (found.status.loadBalancer and found.status.loadBalancer.ingress) or []
            return [(each.port, each.error) for one in ingress for each in one.ports or ()]

        await c.until(errors)
        assert await errors() == [(80, "corral.dev/HostPortUnavailable"), (81, None)]


@pytest.mark.looptime
async def test_ports_opened_by_an_earlier_manager_are_closed():
    async with cluster(nodes=0) as c:
        context = ControllerContext(c.component, clock=c.clock)
        port_forwarder = PortForwarder()
        port_forwarder.ports = {port(80): 80}
        c._tasks.start(context.run(), name="context")
        c._tasks.start(HostPorts(context, port_forwarder, HOST).run(), name="ports")

        async def is_closed():
            return not port_forwarder.ports

        await c.until(is_closed)
