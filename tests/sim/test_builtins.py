"""The Services that are always there."""

from ipaddress import ip_address

import pytest
from lightkube.models.core_v1 import Endpoints, Service
from lightkube.models.discovery_v1 import EndpointSlice
from tests.sim.cluster import cluster

from corral.api.object import Key
from corral.cluster import builtin_services

pytestmark = pytest.mark.looptime

GATEWAY = ip_address("10.244.0.1")
LOOP = builtin_services.controller(
    builtin_services.kubernetes(ip_address("10.96.0.1"), GATEWAY, port=6443),
    builtin_services.dns(ip_address("10.96.0.10"), GATEWAY),
)


async def found(c, view, key):
    items = (await c.client.list(view, key.namespace)).items
    return next((each for each in items if each.metadata.name == key.name), None)


async def converged(c) -> None:
    async def all_there():
        return all(
            [
                await found(c, view, key)
                for view in (Service, Endpoints, EndpointSlice)
                for key in (builtin_services.KUBERNETES, builtin_services.DNS)
            ]
        )

    await c.until(all_there)


async def test_the_kubernetes_service_has_the_servers_endpoints():
    async with cluster(stand_ins=[LOOP]) as c:
        await converged(c)
        api = await found(c, Service, builtin_services.KUBERNETES)
        assert api.spec.clusterIP == "10.96.0.1"
        assert [(port.port, port.targetPort) for port in api.spec.ports] == [(443, 6443)]
        (slices,) = (await c.client.list(EndpointSlice, "default")).items
        assert slices.endpoints[0].addresses == ["10.244.0.1"]
        names = await found(c, Endpoints, builtin_services.DNS)
        assert [(port.name, port.protocol) for port in names.subsets[0].ports] == [
            ("dns", "UDP"), ("dns-tcp", "TCP")
        ]  # fmt: skip


@pytest.mark.parametrize("view", [Service, Endpoints, EndpointSlice])
@pytest.mark.parametrize("key", [builtin_services.KUBERNETES, builtin_services.DNS])
async def test_deleted_objects_are_recreated(view, key):
    async with cluster(stand_ins=[LOOP]) as c:
        await converged(c)
        before = await found(c, view, key)
        await c.client.delete(view, key)

        async def is_back():
            now = await found(c, view, key)
            return now is not None and now.metadata.uid != before.metadata.uid

        await c.until(is_back)
        await converged(c)


async def test_changed_fields_are_restored_and_added_ones_stay():
    async with cluster(stand_ins=[LOOP]) as c:
        await converged(c)
        dns = Key("kube-system", "kube-dns")
        change = {"metadata": {"labels": {"mine": "yes", "k8s-app": "other"}}}
        await c.client.patch(Service, dns, change)
        ports = [{"name": "dns", "protocol": "UDP", "port": 5353}]
        await c.client.patch(Service, dns, {"spec": {"ports": ports, "selector": {"a": "b"}}})

        async def is_right():
            now = await found(c, Service, dns)
            return (
                [port.port for port in now.spec.ports] == [53, 53]
                and not now.spec.selector
                and now.metadata.labels.get("k8s-app") == "kube-dns"
                and now.metadata.labels.get("mine") == "yes"
            )

        await c.until(is_right)
