"""Copies of another namespace's claim: the author of the DataVolume must be permitted it."""

from functools import partial

import pytest
from lightkube.models.core_v1 import Namespace, PersistentVolumeClaim
from tests.sim import provisioner
from tests.sim.cluster import cluster
from tests.sim.pools import pool
from tests.sim.test_virtual_machine_disks import with_disk

from corral.api.errors import NotFound
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.population import populate_request
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Key

pytestmark = pytest.mark.looptime

LOOPS = (provisioner.controller,)
MINE = {"kind": "DataSource", "name": "mine"}
GOLDEN = {"pvc": {"name": "image", "namespace": "golden"}}


async def prepare(c, source):
    """A claim in another namespace, and a DataSource in one's own."""
    await c.client.create(Namespace, {"metadata": {"name": "golden"}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "image", "namespace": "golden"}
    await c.client.create(PersistentVolumeClaim, {"metadata": metadata, "spec": spec})
    metadata = {"name": "mine", "namespace": "default"}
    await c.client.create(DataSource, {"metadata": metadata, "spec": {"source": source}})


async def repoint(c, source):
    await c.client.patch(DataSource, Key("default", "mine"), {"spec": {"source": source}})


def volume(name):
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"sourceRef": MINE, "storage": {}}}


def machine():
    document = with_disk("Halted")
    template = document["spec"]["dataVolumeTemplates"][0]["spec"]
    del template["source"]
    template["sourceRef"] = MINE
    return document


def machines():
    spec = machine()["spec"]
    named = [{"name": "data", "dataVolume": {"name": "data"}}]
    disks = {"disks": [{"name": "data", "disk": {}}]}
    domain = {"memory": {"guest": "64Mi"}, "devices": disks}
    return pool(
        replicas=1,
        vm={"dataVolumeTemplates": spec["dataVolumeTemplates"], "runStrategy": "Halted"},
        spec={"volumes": named, "domain": domain},
    )


async def is_copied(c, name):
    """Return whether there is a claim that is to be a copy."""
    try:
        claim = await c.client.get(PersistentVolumeClaim, name, "default")
    except NotFound:
        return False
    copied = populate_request(claim).source.pvc
    return (copied.namespace, copied.name) == ("golden", "image")


async def is_refused(c, name):
    return "CloneNotPermitted" in [event.reason for event in await c.events(name)]


WRITTEN = [
    (DataVolume, volume("data"), "data"),
    (VirtualMachine, machine(), "data"),
    (VirtualMachinePool, machines(), "data-0"),
]


@pytest.mark.parametrize(("kind", "document", "name"), WRITTEN)
async def test_a_permitted_claim_is_cloned(kind, document, name):
    async with cluster(stand_ins=LOOPS) as c:
        await prepare(c, GOLDEN)
        await c.client.create(kind, document)
        await c.until(partial(is_copied, c, name))


@pytest.mark.parametrize(("kind", "document", "name"), WRITTEN)
async def test_a_claim_to_which_a_data_source_changes_later_is_not_cloned(kind, document, name):
    async with cluster(stand_ins=LOOPS) as c:
        await prepare(c, {})
        await c.client.create(kind, document)

        async def is_made():
            return [each.key.name for each in (await c.client.list(DataVolume)).items] == [name]

        await c.until(is_made)
        await repoint(c, GOLDEN)
        await c.until(partial(is_refused, c, name))
        (event,) = (
            each
            for each in (await c.client.get(DataVolume, name, "default")).status.conditions
            if each.type == "Bound"
        )
        assert event.reason == "CloneNotPermitted"
        assert "datavolumes/source in namespace golden" in event.message
        assert not await is_copied(c, name)
