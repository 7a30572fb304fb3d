"""The provisioner: claims get volumes on disk, grow, are cloned, and go, whatever is cut off."""

import asyncio
import os

import pytest
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass
from tests.sim.cluster import Faults, cluster
from tests.sim.test_claims import claim, claim_is, claim_of, is_gone

from corral.api.errors import ApiError
from corral.api.kinds.cdi.population import PHASE, SUCCEEDED, UPLOAD_TARGET
from corral.api.kinds.storage.common import SHARED_CLASS, SHARED_LABEL, SHARED_PROVISIONER
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.host.open_disks import opened
from corral.node.hypervisor import GuestError, NoMachineError
from corral.node.storage import Storage
from corral.node.storage.claim_placement import HostNodes
from corral.node.storage.disk_space import Space
from corral.node.storage.provision_plan import Backend
from corral.node.storage.provisioner import controller
from corral.node.storage.shared_volume_expansion import SharedVolumeExpansion

pytestmark = pytest.mark.looptime

GiB = 1 << 30
DATA = Key("default", "data")


class Disks:
    """A storage, what it has, and the machine that has a disk of it open."""

    def __init__(self, directory):
        self.space = Space(0, 100 * GiB)
        self.storage = Storage(directory / "storage", space=lambda _: self.space)
        self.grown = []
        self.machine_answers = True

    def loops(self):
        return [controller(self.storage, self.grow)]

    async def grow(self, claim, size):
        if not self.machine_answers:
            raise GuestError("no answer")
        self.grown.append((claim, size))

    def of(self, claimed):
        return self.storage.find(claimed.spec.volumeName)


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path)


def copy(name, source, size="1Gi"):
    source = {"kind": "PersistentVolumeClaim", "name": source}
    return claim(name, size, dataSource=source)


async def wants(c, size, name="data"):
    patch = {"spec": {"resources": {"requests": {"storage": size}}}}
    await c.client.patch(PersistentVolumeClaim, Key("default", name), patch)


async def has(c, size, name="data"):
    async def reached():
        return (await claim_of(c, name)).status.capacity["storage"] == size

    await c.until(reached, 200)


async def bound(c, document):
    await c.client.create(PersistentVolumeClaim, document)
    return await claim_is(c, "Bound", document["metadata"]["name"])


async def refused(c, name):
    """Wait for an event that says why a claim waits; return the last one."""
    found = []

    async def reached():
        found[:] = [e for e in await c.events(name) if e.type == "Warning"]
        return bool(found)

    await c.until(reached)
    return found[-1]


async def test_a_claim_gets_a_volume_with_the_node_of_its_storage(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim(volumeMode="Block"))
        stored = disks.of(got)
        assert (stored.capacity_bytes, stored.volume_mode) == (GiB, "Block")
        volume = await c.client.get(PersistentVolume, got.spec.volumeName)
        assert volume.spec.csi.volumeHandle == stored.handle == f"pvc-{got.metadata.uid}"
        assert volume.spec.csi.driver == "corral.dev"
        terms = volume.spec.nodeAffinity.required.nodeSelectorTerms
        assert terms[0].matchExpressions[0].values == [disks.storage.id]
        reasons = [event.reason for event in await c.events("data")]
        assert reasons[-2:] == ["Provisioning", "ProvisioningSucceeded"]


async def test_a_volume_is_deleted_with_its_claim(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim())
        await c.client.delete(PersistentVolumeClaim, DATA)
        await c.until(lambda: is_gone(c, PersistentVolume, Key("", got.spec.volumeName)))
        assert list(disks.storage.volumes()) == []


async def test_a_retained_volume_stays_on_disk(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim())
        name = Key("", got.spec.volumeName)
        keep = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        await c.client.patch(PersistentVolume, name, keep)
        await c.client.delete(PersistentVolumeClaim, DATA)
        await c.until(lambda: is_gone(c, PersistentVolumeClaim, DATA))
        await c.client.delete(PersistentVolume, name)
        await c.until(lambda: is_gone(c, PersistentVolume, name))
        assert disks.of(got) is not None


async def test_a_volume_in_use_is_deleted_afterwards(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim())
        held = opened(disks.of(got).disk.path, os.O_RDWR)
        await c.client.delete(PersistentVolumeClaim, DATA)
        assert (await refused(c, got.spec.volumeName)).reason == "VolumeFailedDelete"
        os.close(held)
        gone = Key("", got.spec.volumeName)
        await c.until(lambda: is_gone(c, PersistentVolume, gone), seconds=200)


async def test_a_claim_larger_than_the_capacity_waits(disks):
    disks.space = Space(0, 3 * GiB)
    async with cluster(stand_ins=disks.loops()) as c:
        await bound(c, claim("first", "2Gi"))
        await c.client.create(PersistentVolumeClaim, claim(size="2Gi"))
        event = await refused(c, "data")
        assert event.reason == "ProvisioningFailed"
        assert 'StorageClass "corral": volume pvc-' in event.message
        assert "needs 2 GiB, and 1 GiB are left" in event.message
        await c.client.delete(PersistentVolumeClaim, Key("default", "first"))
        await claim_is(c, "Bound")


async def test_a_class_may_overcommit_the_capacity(disks):
    disks.space = Space(0, 3 * GiB)
    async with cluster(stand_ins=disks.loops()) as c:
        parameters = {"overcommitPercent": "100"}
        document = {
            "metadata": {"name": "thin"},
            "provisioner": "corral.dev/directory",
            "parameters": parameters,
        }
        await c.client.create(StorageClass, document)
        await bound(c, claim(size="6Gi", storageClassName="thin"))
        await c.client.create(PersistentVolumeClaim, claim("more", storageClassName="thin"))
        assert (await refused(c, "more")).reason == "ProvisioningFailed"


async def test_an_invalid_parameter_of_a_class_is_reported(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        document = {
            "metadata": {"name": "odd"},
            "provisioner": "corral.dev/directory",
            "parameters": {"overcommitPercent": "lots"},
        }
        await c.client.create(StorageClass, document)
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="odd"))
        assert "overcommitPercent" in (await refused(c, "data")).message


async def test_an_unused_claim_is_expanded(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim())
        await wants(c, "2Gi")
        await has(c, "2Gi")
        assert disks.of(got).disk.path.stat().st_size == 2 * GiB
        volume = await c.client.get(PersistentVolume, got.spec.volumeName)
        assert volume.spec.capacity["storage"] == "2Gi"
        assert disks.grown == []
        assert await is_reported(c, "data", "Resize volume succeeded")


async def test_a_claim_in_use_is_expanded_in_its_machine(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        got = await bound(c, claim())
        held = opened(disks.of(got).disk.path, os.O_RDWR)
        disks.machine_answers = False
        await wants(c, "2Gi")
        assert (await refused(c, "data")).reason == "VolumeResizeFailed"
        assert (await claim_of(c)).status.capacity["storage"] == "1Gi"
        disks.machine_answers = True
        await has(c, "2Gi")
        assert disks.grown == [(DATA, 2 * GiB)]
        os.close(held)


async def test_a_claim_with_a_claim_as_data_source_is_a_clone(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        source = await bound(c, claim())
        with disks.of(source).disk.path.open("r+b") as file:
            file.write(b"golden" * 4096)
        got = await bound(c, copy("copy", "data", "2Gi"))
        assert disks.of(got).layers[0].path.samefile(disks.of(source).layers[0].path)
        assert disks.of(got).capacity_bytes == 2 * GiB


async def test_a_clone_waits_until_its_source_exists_and_is_populated(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        await c.client.create(PersistentVolumeClaim, copy("copy", "data"))
        assert 'claim "data", is not found' in (await refused(c, "copy")).message
        document = claim()
        document["metadata"]["annotations"] = {UPLOAD_TARGET: ""}
        await bound(c, document)
        await c.until(lambda: is_reported(c, "copy", "is not populated"), seconds=200)
        done = {"metadata": {"annotations": {PHASE: SUCCEEDED}}}
        await c.client.patch(PersistentVolumeClaim, DATA, done)
        await claim_is(c, "Bound", "copy")


async def is_reported(c, name, words):
    return any(words in event.message for event in await c.events(name))


async def test_a_clone_waits_while_a_machine_writes_its_source(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        source = await bound(c, claim())
        held = opened(disks.of(source).disk.path, os.O_RDWR)
        await c.client.create(PersistentVolumeClaim, copy("copy", "data"))
        assert (await refused(c, "copy")).reason == "CloneSourceInUse"
        os.close(held)
        await claim_is(c, "Bound", "copy")


async def test_a_data_source_of_another_kind_is_rejected(disks):
    async with cluster(stand_ins=disks.loops()) as c:
        source = {"kind": "VolumeSnapshot", "name": "x", "apiGroup": "snapshot.storage.k8s.io"}
        await c.client.create(PersistentVolumeClaim, claim(dataSource=source))
        assert "VolumeSnapshot cannot be the source" in (await refused(c, "data")).message


async def test_a_volume_whose_claim_was_deleted_before_it_is_stored_is_removed(disks):
    disks.storage.provision("pvc-forgotten", GiB)
    disks.storage.provision("pvc-written", GiB).disk.path.write_bytes(b"x" * 4096)
    async with cluster(stand_ins=disks.loops()) as c:

        async def is_swept():
            return disks.storage.find("pvc-forgotten") is None

        await c.until(is_swept)
        assert disks.storage.find("pvc-written") is not None


@pytest.mark.parametrize("seed", range(4))
async def test_each_claim_has_one_volume_and_none_is_left_over(disks, seed):
    faults = Faults(seed, fail=0.2, lose_answer=0.2, delay=0.2, cut=0.1, double=0.2, until=20)
    async with cluster(stand_ins=disks.loops(), faults=faults) as c:
        names = [f"data-{number}" for number in range(6)]
        for name in names:
            await c.client.create(PersistentVolumeClaim, claim(name))
        await c.crash_loops()
        c.start_loops()
        for name in names:
            await claim_is(c, "Bound", name)
        for name in names[:3]:
            await c.client.delete(PersistentVolumeClaim, Key("default", name))
        await c.crash_loops()
        c.start_loops()

        async def is_ready_now():
            try:
                volumes = (await c.client.list(PersistentVolume)).items
            except ApiError:
                return False
            bound = {(await claim_of(c, name)).spec.volumeName for name in names[3:]}
            stored = {volume.handle for volume in disks.storage.volumes()}
            return {each.metadata.name for each in volumes} == stored == bound

        await c.until(is_ready_now, seconds=400)


async def test_a_volume_of_an_existing_claim_is_not_removed_before_it_is_stored(disks, monkeypatch):
    removed = []
    monkeypatch.setattr(disks.storage, "remove", removed.append)
    async with cluster(stand_ins=disks.loops()) as c:
        await c.crash_loops()
        created = await c.client.create(PersistentVolumeClaim, claim())
        disks.storage.provision(f"pvc-{created.metadata.uid}", GiB)
        c.start_loops()
        await claim_is(c, "Bound")
        assert removed == []


def provisioner_of(shared):
    """The provisioner of a shared directory, on the first host."""
    backend = Backend(shared.storage.id, SHARED_LABEL, SHARED_PROVISIONER)
    return controller(shared.storage, shared.grow, HostNodes(selects=False), backend=backend)


async def bound_to_shared(c, shared):
    """Return a claim of a shared directory, bound."""
    label = {SHARED_LABEL: shared.storage.id}
    await c.client.create(Node, {"metadata": {"name": "one", "labels": label}})

    async def classified():
        names = {each.metadata.name for each in (await c.client.list(StorageClass)).items}
        return SHARED_CLASS in names

    await c.until(classified)
    return await bound(c, claim(storageClassName=SHARED_CLASS, accessModes=["ReadWriteMany"]))


async def test_claims_of_a_shared_directory_are_bound_at_once_and_reached_by_its_nodes(tmp_path):
    own, shared = Disks(tmp_path / "own"), Disks(tmp_path / "shared")
    async with cluster(stand_ins=[*own.loops(), provisioner_of(shared)]) as c:
        got = await bound_to_shared(c, shared)
        assert shared.of(got).record.shareable
        assert own.of(got) is None
        volume = await c.client.get(PersistentVolume, got.spec.volumeName)
        (term,) = volume.spec.nodeAffinity.required.nodeSelectorTerms
        (reached,) = term.matchExpressions
        assert (reached.key, reached.values) == (SHARED_LABEL, [shared.storage.id])
        await wants(c, "2Gi")
        await has(c, "2Gi")
        await c.client.delete(PersistentVolumeClaim, DATA)
        await c.until(lambda: is_gone(c, PersistentVolume, Key("", got.spec.volumeName)))
        assert list(shared.storage.volumes()) == []


class ElsewhereUsed(Disks):
    """A shared directory of which another host's machine has a disk open: ``grow`` finds none."""

    def __init__(self, directory):
        super().__init__(directory)
        self.there = Disks(directory / "there")
        self.there.machine_answers = False

    async def grow(self, claim, size):
        raise NoMachineError("no machine that uses the claim is found")

    def loops(self):
        def on_node(context):
            vmis = context.informers.of(VirtualMachineInstance)
            grow = self.there.grow
            return SharedVolumeExpansion(context, vmis, self.storage.id, "two", grow).controller

        return [provisioner_of(self), on_node]


async def waits_for_its_node(c):
    conditions = (await claim_of(c)).status.conditions or ()
    return [each.type for each in conditions] == ["FileSystemResizePending"]


async def test_a_shared_claim_that_another_host_has_open_is_expanded_there(tmp_path):
    shared = ElsewhereUsed(tmp_path)
    async with cluster(stand_ins=shared.loops()) as c:
        got = await bound_to_shared(c, shared)
        held = opened(shared.of(got).disk.path, os.O_RDWR)
        await wants(c, "2Gi")
        await c.until(lambda: waits_for_its_node(c))
        await c.until(lambda: is_reported(c, "data", "is not resized: no answer"))
        volume = await c.client.get(PersistentVolume, got.spec.volumeName)
        assert volume.spec.capacity["storage"] == "2Gi"
        assert (await claim_of(c)).status.capacity["storage"] == "1Gi"
        shared.there.machine_answers = True
        await has(c, "2Gi")
        assert shared.there.grown == [(DATA, 2 * GiB)]
        assert not await waits_for_its_node(c)
        assert [each.reason for each in await c.events("data")].count("Resizing") == 1
        os.close(held)


async def test_a_host_without_the_machine_waits_until_it_runs_there(tmp_path, monkeypatch):
    shared, tried = ElsewhereUsed(tmp_path), []
    monkeypatch.setattr(shared.there, "machine_answers", True)
    grow = shared.there.grow

    async def grow_once_it_runs(claim, size):
        tried.append(claim)
        if len(tried) == 1:
            raise NoMachineError("no machine that uses the claim is found")
        await grow(claim, size)

    monkeypatch.setattr(shared.there, "grow", grow_once_it_runs)
    async with cluster(stand_ins=shared.loops()) as c:
        got = await bound_to_shared(c, shared)
        held = opened(shared.of(got).disk.path, os.O_RDWR)
        await wants(c, "2Gi")
        await c.until(lambda: waits_for_its_node(c))
        await asyncio.sleep(600)
        assert tried == [DATA]
        labels = {"metadata": {"labels": {SHARED_LABEL: shared.storage.id}}}
        await c.client.patch(Node, Key("", "node0"), labels)
        disk = {"name": "disk", "persistentVolumeClaim": {"claimName": DATA.name}}
        spec = {
            "domain": {"devices": {"disks": [{"name": "disk"}]}, "memory": {"guest": "64Mi"}},
            "volumes": [disk],
        }
        vmi = {"metadata": {"name": "vmi", "namespace": DATA.namespace}, "spec": spec}
        await c.client.create(VirtualMachineInstance, vmi)
        await has(c, "2Gi")
        assert tried == [DATA, DATA]
        os.close(held)


async def test_a_shared_claim_is_expanded_once_the_machine_of_another_host_has_ended(tmp_path):
    shared = ElsewhereUsed(tmp_path)
    async with cluster(stand_ins=shared.loops()) as c:
        got = await bound_to_shared(c, shared)
        held = opened(shared.of(got).disk.path, os.O_RDWR)
        await wants(c, "2Gi")
        await c.until(lambda: waits_for_its_node(c))
        os.close(held)
        await has(c, "2Gi")
        assert shared.of(got).disk.path.stat().st_size == 2 * GiB
        assert shared.there.grown == []
        assert not await waits_for_its_node(c)
