"""Services that a change of the range has left outside."""

from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import Event, Service
from tests.sim.cluster import cluster

from corral.api.object import Key
from corral.cluster import service_ip_repair

pytestmark = pytest.mark.looptime

RANGE = ip_network("10.96.0.0/16")  # the cluster gives out 10.96.0.0/12
LOOP = service_ip_repair.controller(RANGE, repaired=[Key("default", "mended")])


async def test_only_services_outside_the_range_are_reported():
    async with cluster(stand_ins=[LOOP]) as c:
        for name, address in (
            ("mended", "10.97.0.8"), ("headless", "None"), ("in", "10.96.0.7"), ("out", "10.97.0.7")
        ):  # fmt: skip
            spec = {"clusterIP": address, "ports": [{"port": 80}]}
            metadata = {"name": name, "namespace": "default"}
            await c.client.create(Service, {"metadata": metadata, "spec": spec})

        async def reports():
            found = (await c.client.list(Event)).items
            return [each for each in found if each.reason == "ClusterIPOutOfRange"]

        await c.until(reports)
        (event,) = await reports()
        assert event.involvedObject.name == "out"
        assert event.type == "Warning"
        assert event.message == (
            "Cluster IP 10.97.0.7 is not within 10.96.0.0/16: recreate the Service"
        )
