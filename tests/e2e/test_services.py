"""Services in the kernel: who answers a connection, among pods that are namespaces."""

import asyncio
import socket
import threading
from collections import Counter
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from bench.pods import (
    GATEWAYS,
    SERVICES,
    Asking,
    answered,
    connected,
    obtain_rights,
    scene,
)
from lightkube.models.core_v1 import Namespace as ApiNamespace, Pod as ApiPod, Service
from lightkube.models.discovery_v1 import Endpoint, EndpointPort, EndpointSlice

from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import endpoints
from corral.node.network import nft
from corral.node.network.netlink import NetworkError
from corral.node.proxy import proxy as proxies
from corral.node.proxy.proxy import Proxy
from corral.node.proxy.service_rules import rules_for
from corral.reconcile.context import ControllerContext
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.store import Store

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
NODE = ip_address("192.0.2.1")
ADDRESS, ADDRESS6 = "10.96.0.20", "fd00:10:96::20"
MARK = "add chain inet corral_services earlier"
"""Something of ours in the proxy's table, which is gone when it has written it anew."""
PATIENCE = 120.0
CHANGES = 500
DEAF = """table inet deaf {
  set heard { type ipv4_addr; flags dynamic; }
  chain input {
    type filter hook input priority 0; policy accept;
    tcp dport 8080 add @heard { ip saddr } drop
  }
}
"""
"""Lets a pod answer nobody, and remember who asked."""
OVERLOOKED = f"""table inet overlooked {{
  chain prerouting {{
    type filter hook prerouting priority -95; policy accept;
    ip daddr {ADDRESS} counter
  }}
}}
"""
"""Counts what was sent to the Service and led to nobody."""


@pytest.fixture(scope="module", autouse=True)
def rights(tmp_path_factory):
    obtain_rights(tmp_path_factory.mktemp("holder"))


class Cluster:
    """An API, the endpoints controller, a proxy, and pods with a server each."""

    def __init__(self, stage, server: ApiServer, tasks: Background) -> None:
        self.stage = stage
        self.client = Client(InProcess(server.handle, ADMIN))
        self.pods = {}
        self._server = server
        self._tasks = tasks
        self._proxy = None

    def start(self) -> None:
        context = ControllerContext(Client(InProcess(self._server.handle, ADMIN)))
        controller = endpoints.controller(context)
        proxy = Proxy(context, self.stage, nodes={"node0"}, addresses=[NODE])

        async def run() -> None:
            async with Background() as tasks:
                tasks.start(context.run(), name="context")
                tasks.start(controller.run(), name="endpoints")
                await tasks.start(proxy.run(), name="proxy")

        self.rules = proxy.rules
        self._proxy = self._tasks.start(run(), name="loops")

    async def stop(self) -> None:
        self._proxy.cancel()
        await asyncio.wait([self._proxy])

    async def add(self, name: str, number: int, *, ready: bool = True) -> None:
        pod = self.stage.pod(name, f"10.244.0.{number}", f"fd00:10:244::{number:x}")
        await pod.serve()
        await pod.serve_datagrams()
        self.pods[name] = pod
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "node0"}
        metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        await self.client.create(ApiPod, {"metadata": metadata, "spec": spec})
        await self.report(name, ready=ready)

    async def report(self, name: str, *, ready: bool) -> None:
        status = {
            "phase": "Running",
            "podIP": self.pods[name].addresses[0],
            "podIPs": [{"ip": each} for each in self.pods[name].addresses],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        await self.client.patch(ApiPod, Key("default", name), {"status": status},
                                subresource="status")  # fmt: skip

    async def remove(self, name: str) -> None:
        """The pod is gone at once, and its namespace with it."""
        self.pods.pop(name).vanish()
        await self.client.delete(ApiPod, Key("default", name), grace_seconds=0)

    async def expose(self, **spec) -> None:
        whole = {
            "clusterIP": ADDRESS,
            "clusterIPs": [ADDRESS, ADDRESS6],
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "web"},
            "ports": [
                {"name": "tcp", "port": 80, "targetPort": 8080},
                {"name": "udp", "port": 80, "targetPort": 8080, "protocol": "UDP"},
            ],
        }
        metadata = {"name": "web", "namespace": "default"}
        await self.client.create(Service, {"metadata": metadata, "spec": whole | spec})

    async def backends(self, *names: str, address: str = ADDRESS, port: int = 80) -> None:
        """Until new connections from the client reach these pods and no others."""
        wanted = set(names)
        async with asyncio.timeout(PATIENCE):
            while await self.sample(address, port, 12 * len(names) or 1) != wanted:
                await asyncio.sleep(0.02)

    async def drawn_from(self, count: int) -> None:
        """Until the kernel draws from so many: of both families, for both protocols."""
        await self.until_listed(lambda text: text.count(f"numgen random mod {count} ") == 4)

    async def until_listed(self, holds) -> None:
        """Until the proxy's table is as it should be."""
        async with asyncio.timeout(PATIENCE):
            while not holds(await self.listing()):
                await asyncio.sleep(0.02)

    async def listing(self) -> str:
        try:
            return await self.stage.namespace.call(nft.query, "list table inet corral_services")
        except NetworkError:
            return ""

    async def sample(self, address: str, port: int, count: int) -> set[str]:
        found = set()
        for _ in range(count):
            try:
                found.add(await answered(self.client_namespace, address, port))
            except OSError:
                continue
        return found

    @property
    def client_namespace(self):
        return self.pods["client"].namespace


@asynccontextmanager
async def cluster(*names: str):
    store = Store.in_memory()
    server = ApiServer(store, services=ServiceRanges(networks=SERVICES))
    async with scene() as stage, Background() as tasks:
        whole = Cluster(stage, server, tasks)
        await whole.client.create(ApiNamespace, {"metadata": {"name": "default"}})
        whole.start()
        whole.pods["client"] = stage.pod("client", "10.244.0.250", "fd00:10:244::fa")
        for number, name in enumerate(names, 2):
            await whole.add(name, number)
        yield whole
        await whole.stop()
    await store.close()


async def spread(namespace, address: str, port: int = 80) -> Counter[str]:
    return Counter([await answered(namespace, address, port) for _ in range(50)])


async def test_connections_are_spread_over_ready_pods():
    async with cluster("one", "two", "three") as c:
        await c.add("four", 9, ready=False)
        await c.expose()
        await c.backends("one", "two", "three")
        for address in (ADDRESS, ADDRESS6):
            counts = await spread(c.client_namespace, address)
            # Fewer than five of fifty, with a chance of a third each, come once in 100 000 times.
            assert set(counts) == {"one", "two", "three"}
            assert min(counts.values()) >= 5
        with Asking(c.client_namespace, ADDRESS, 80) as asking:
            assert await asking.answer() in {"one", "two", "three"}


async def test_the_host_can_connect_to_services():
    async with cluster("one") as c:
        await c.expose()
        await c.backends("one")
        for address in (ADDRESS, ADDRESS6):
            assert await answered(c.stage.namespace, address, 80) == "one"


async def test_pods_see_the_clients_address_and_hairpin_traffic_is_masqueraded():
    async with cluster("one") as c:
        await c.expose()
        await c.backends("one")
        async with connected(c.client_namespace, ADDRESS, 80) as connection:
            assert connection.seen_as == "10.244.0.250"
        for address, gateway in ((ADDRESS, GATEWAYS[0]), (ADDRESS6, GATEWAYS[1])):
            async with connected(c.pods["one"].namespace, address, 80) as connection:
                assert (connection.server, connection.seen_as) == ("one", str(gateway))


async def test_session_affinity_keeps_the_endpoint_while_it_is_ready():
    async with cluster("one", "two", "three") as c:
        await c.expose(
            sessionAffinity="ClientIP",
            sessionAffinityConfig={"clientIP": {"timeoutSeconds": 600}},
        )
        await c.drawn_from(3)
        first = await answered(c.client_namespace, ADDRESS, 80)
        assert await c.sample(ADDRESS, 80, 20) == {first}
        others = {"one", "two", "three"} - {first}
        seen = {await answered(c.pods[name].namespace, ADDRESS, 80) for name in others}
        assert seen <= {"one", "two", "three"}
        await c.report(first, ready=False)
        async with asyncio.timeout(PATIENCE):
            while (second := await answered(c.client_namespace, ADDRESS, 80)) == first:
                await asyncio.sleep(0.02)
        assert await c.sample(ADDRESS, 80, 20) == {second}


async def test_session_affinity_survives_a_restart():
    async with cluster("one", "two", "three", "four") as c:
        config = {"clientIP": {"timeoutSeconds": 600}}
        await c.expose(sessionAffinity="ClientIP", sessionAffinityConfig=config)
        await c.drawn_from(4)
        callers = list(c.pods.values())
        before = [await answered(each.namespace, ADDRESS, 80) for each in callers]
        before6 = [await answered(each.namespace, ADDRESS6, 80) for each in callers]
        for _ in range(2):
            await c.stop()
            await c.stage.namespace.call(nft.apply, f"{MARK}\n")
            c.start()
            await c.until_listed(lambda text: "earlier" not in text)
            assert [await answered(each.namespace, ADDRESS, 80) for each in callers] == before
            assert [await answered(each.namespace, ADDRESS6, 80) for each in callers] == before6


async def test_session_affinity_times_out():
    async with cluster("one", "two") as c:
        await c.expose(
            sessionAffinity="ClientIP",
            sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}},
        )
        seen = set()
        async with asyncio.timeout(PATIENCE):
            while seen != {"one", "two"}:
                seen |= await c.sample(ADDRESS, 80, 1)
                await asyncio.sleep(1.1)


async def test_a_service_without_endpoints_rejects_connections_at_once():
    async with cluster("one") as c:
        await c.expose(selector={"app": "nobody"})
        await c.client.create(
            Service,
            {
                "metadata": {"name": "other", "namespace": "default"},
                "spec": {"clusterIP": "10.96.0.21", "selector": {"app": "web"},
                         "ports": [{"port": 80, "targetPort": 8080}]},
            },
        )  # fmt: skip
        await c.backends("one", address="10.96.0.21")
        refusing = [(ADDRESS, 80), (ADDRESS6, 80), ("10.96.0.21", 81), ("10.96.9.9", 80)]
        for namespace in (c.client_namespace, c.stage.namespace):
            for address, port in refusing:
                with pytest.raises(ConnectionRefusedError):
                    await answered(namespace, address, port)
                with (
                    Asking(namespace, address, port) as asking,
                    # A program of the machine itself gets the error at once, as of any filter.
                    pytest.raises((ConnectionRefusedError, PermissionError)),
                ):
                    await asking.answer()


async def test_connections_outlive_readiness_and_end_with_the_pod():
    async with cluster("one") as c:
        await c.expose()
        await c.backends("one")
        async with connected(c.client_namespace, ADDRESS, 80) as connection:
            await c.add("two", 3)
            await c.report("one", ready=False)
            await c.backends("two")
            assert await connection.echo()
            await c.remove("one")
            with pytest.raises(ConnectionResetError):
                await connection.echo()


async def test_no_new_connection_fails_while_pods_change():
    async with cluster("zero", "one") as c:
        await c.expose()
        await c.backends("zero", "one")
        for number in range(2, 8):
            name = f"pod{number}"
            await c.add(name, number + 10)
            gone = next(iter(each for each in c.pods if each not in ("client", name, "zero")))
            await c.report(gone, ready=False)
            await c.backends("zero", name)
            await c.remove(gone)
            counts = await spread(c.client_namespace, ADDRESS)
            assert set(counts) == {"zero", name}


async def test_a_connection_waiting_for_a_deleted_pod_is_redirected():
    async with cluster("one") as c:
        await c.expose()
        await c.backends("one")
        await c.pods["one"].namespace.call(nft.apply, DEAF)
        waiting = asyncio.create_task(answered(c.client_namespace, ADDRESS, 80))
        while "10.244.0.250" not in await c.pods["one"].namespace.call(nft.query, "list ruleset"):
            await asyncio.sleep(0.02)
        await c.add("two", 3)
        await c.client.delete(ApiPod, Key("default", "one"), grace_seconds=0)
        assert await waiting == "two", "the kernel would send on to the first for two minutes"


async def test_a_connection_during_a_change_of_endpoints_reaches_one():
    async with cluster("one", "two", "three") as c:
        await c.expose()
        await c.drawn_from(3)
        inside = c.stage.namespace
        await inside.call(nft.apply, OVERLOOKED)
        one = await c.client.get(Service, "web", "default")
        some, all_of_them = (
            {Key("default", "web"): rules_for(one, [slice_of(count)], ())} for count in (2, 3)
        )
        over = threading.Event()
        calling = asyncio.create_task(c.client_namespace.call(call_until, over))
        for _ in range(CHANGES):
            for parts in (some, all_of_them):
                await inside.call(nft.apply, c.rules.change(parts))
        over.set()
        assert await calling > CHANGES, "there were calls all the time"
        assert "counter packets 0 " in await inside.call(nft.query, "list table inet overlooked")


def slice_of(count: int) -> EndpointSlice:
    return EndpointSlice(
        addressType="IPv4",
        endpoints=[Endpoint(addresses=[f"10.244.0.{2 + number}"]) for number in range(count)],
        ports=[EndpointPort(name="udp", port=8080, protocol="UDP")],
    )


def call_until(over: threading.Event) -> int:
    """Send datagrams to the Service, each from a socket of its own; answers how many."""
    sent = 0
    while not over.is_set():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
            caller.sendto(b"?", (ADDRESS, 80))
        sent += 1
    return sent


@pytest.mark.parametrize("address", [ADDRESS, ADDRESS6])
async def test_datagrams_are_sent_to_live_pods(address):
    async with cluster("one") as c:
        await c.expose()
        await c.backends("one")
        with (
            Asking(c.client_namespace, address, 80) as asking,
            Asking(c.client_namespace, address, 80) as other,
        ):
            assert await asking.answer() == "one"
            await c.add("two", 3)
            await c.backends("one", "two")
            assert await asking.answer() == "one"
            await c.report("one", ready=False)
            async with asyncio.timeout(PATIENCE):
                while await quietly(asking) != "two":
                    await asyncio.sleep(0.02)
            assert [await asking.answer() for _ in range(10)] == ["two"] * 10
            assert await other.answer() == "two"


async def quietly(asking: Asking) -> str:
    """Return the response, or that there is none."""
    try:
        return await asking.answer()
    except ConnectionRefusedError:
        return ""


async def test_terminating_pods_are_used_only_if_no_other_is_ready():
    async with cluster("one", "two") as c:
        await c.expose()
        await c.backends("one", "two")
        await c.client.delete(ApiPod, Key("default", "one"), grace_seconds=300)
        await c.backends("two")
        await c.client.delete(ApiPod, Key("default", "two"), grace_seconds=300)
        await c.backends("one", "two")


async def test_node_ports_and_external_addresses():
    async with cluster("one", "two") as c:
        ports = [{"port": 80, "targetPort": 8080, "nodePort": 30080}]
        await c.expose(type="NodePort", ports=ports, externalIPs=["198.51.100.7"])
        await c.backends("one", "two")
        for address in (str(NODE), *map(str, GATEWAYS)):
            assert await c.sample(address, 30080, 20) == {"one", "two"}
        assert await c.sample("198.51.100.7", 80, 20) == {"one", "two"}
        assert await answered(c.stage.namespace, str(GATEWAYS[0]), 30080) in {"one", "two"}


async def test_custom_endpoints_are_served():
    async with cluster("one") as c:
        await c.expose(selector=None)
        port = {"name": "tcp", "port": 8080, "protocol": "TCP"}
        await c.client.create(
            EndpointSlice,
            {
                "metadata": {"name": "mine", "namespace": "default",
                             "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "ports": [port],
                "endpoints": [{"addresses": ["10.244.0.2"]}],
            },
        )  # fmt: skip
        await c.backends("one")


async def test_a_restart_keeps_connections_and_a_lost_table_is_restored(monkeypatch):
    monkeypatch.setattr(proxies, "PROBE_SECONDS", 0.1)
    async with cluster("one", "two") as c:
        await c.expose()
        await c.backends("one", "two")
        async with connected(c.client_namespace, ADDRESS, 80) as connection:
            await c.stop()
            assert await answered(c.client_namespace, ADDRESS, 80) in {"one", "two"}
            await c.report("two", ready=False)
            c.start()
            await c.backends("one")
            assert await connection.echo()
            await c.stage.namespace.call(nft.apply, "delete table inet corral_services")
            await c.backends("one")
            assert await connection.echo()


async def test_incremental_writes_give_the_same_table(monkeypatch):
    monkeypatch.setattr(nft, "TRANSACTION_CHARACTERS", 200)
    async with cluster("one", "two") as c:
        await c.expose()
        await c.backends("one", "two")
        before = await c.listing()
        steps = c.rules.split_transactions()
        assert len(steps) > 5
        for step in steps:
            await c.stage.namespace.call(nft.apply, step)
        # The kernel keeps elements in no order.
        assert sorted(before.replace(",", "").split()) == sorted(
            (await c.listing()).replace(",", "").split()
        )
        await c.backends("one", "two")
