"""DataVolumes in virtual time: from the object to the filled volume, whatever comes between."""

import asyncio
import io
import os
from functools import partial
from itertools import pairwise
from operator import le

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from tests.sim.cluster import cluster

from corral.aio import Background
from corral.api.errors import NotFound
from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.object import Key
from corral.node.host.open_disks import opened
from corral.node.images.image import Record
from corral.node.images.reference import parse
from corral.node.images.store import ImageStore
from corral.node.images.work_directory import work_directory
from corral.node.storage import Storage
from corral.node.storage.disk_space import Space
from corral.node.storage.population import Populator, Uploads, http_download, populator as filling
from corral.node.storage.population.error import PopulationError
from corral.node.storage.population.sources import Sources
from corral.node.storage.provisioner import controller as provisioner

pytestmark = pytest.mark.looptime

HTTP = {"http": {"url": "http://images.example/disk.img"}}
MiB = 1 << 20


async def no_growth(*_):
    """Nothing runs here."""


@pytest.fixture
def storage(tmp_path):
    return Storage(tmp_path / "storage", space=lambda _: Space(1 << 40, 1 << 40))


@pytest.fixture
def loops(storage, tmp_path):
    """The loops of a storage, made anew as often as the cluster's loops are."""
    images = ImageStore(tmp_path / "images")
    return (
        provisioner(storage, no_growth),
        lambda context: Populator(context, storage, images, Uploads()),
    )


@pytest.fixture
def web(monkeypatch, storage):
    """Fetching: raises or fetches the items of the list, in order, then succeeds."""
    outcomes = []

    def fetch(request, part, report, stop):
        outcome = outcomes.pop(0) if outcomes else b"letters".ljust(MiB, b".")
        if isinstance(outcome, Exception):
            raise outcome
        part.begin(request.url, "", 0)
        part.write_from(io.BytesIO(outcome).readinto, lambda _: report(MiB, MiB))
        part.finish()

    monkeypatch.setattr(http_download, "fetch", fetch)
    return outcomes


def volume(name="disk", source=None, size="16Mi", **spec):
    storage = {"resources": {"requests": {"storage": size}}} if size else {}
    if "sourceRef" not in spec:
        spec["source"] = source or {"blank": {}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storage": storage, **spec},
    }


async def of(c, name="disk"):
    return await c.client.get(DataVolume, name, "default")


async def is_in(c, phase, name="disk"):
    return (await of(c, name)).status.phase == phase


async def content(c, storage, name="disk"):
    claim = await c.client.get(PersistentVolumeClaim, name, "default")
    bound = await c.client.get(PersistentVolume, claim.spec.volumeName)
    return storage.find(bound.spec.csi.volumeHandle)


async def reasons(c, name="disk"):
    return [event.reason for event in await c.events(name)]


async def test_a_blank_data_volume_succeeds_once_its_claim_is_bound(loops):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        assert (await of(c)).status.progress == "100.0%"
        assert {"Pending", "Bound", "ImportInProgress", "ImportSucceeded"} <= set(await reasons(c))


async def test_a_retry_happens_at_once_when_the_image_appears(storage, tmp_path):
    images = ImageStore(tmp_path / "images")

    def fillings(context):
        return Populator(context, storage, images, Uploads())

    disk = tmp_path / "disk.raw"
    disk.write_bytes(bytes(MiB))
    source = {"registry": {"url": "docker://localhost:1/lab/disk:1"}}
    async with cluster(stand_ins=(provisioner(storage, no_growth), fillings)) as c:
        watching = asyncio.ensure_future(images.watch())
        await c.client.create(DataVolume, volume(source=source))

        async def waits_long():
            return (await of(c)).status.restart_count > 5

        await c.until(waits_long, 3600)
        theirs = ImageStore(tmp_path / "images")
        imported = asyncio.get_running_loop().time()
        await theirs.import_disk(disk, ["localhost:1/lab/disk:1"])
        await c.until(partial(is_in, c, "Succeeded"))
        assert asyncio.get_running_loop().time() - imported < filling.MIN_BACKOFF_SECONDS
        watching.cancel()


class Pulling(ImageStore):
    """Pulls take a second, and bring the same image each time."""

    def __init__(self, directory, disk):
        super().__init__(directory)
        self.disk, self.times = disk, []

    async def _pull(self, image, credentials, offered, report):
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        name = str(parse(image.reference))
        if (known := self.find(name)) is not None:
            return await asyncio.to_thread(self._alias, known, name, known.access)
        with work_directory(self._work, self._blobs) as work:
            record = Record(reference=name, source="pull", manifest="sha256:same")
            return await self._add(self.disk.rename(work / "disk"), name, record, [], report)


async def test_an_image_pulled_by_the_import_itself_triggers_no_retry(storage, tmp_path):
    disk = tmp_path / "disk.raw"
    disk.write_bytes(bytes(17 * MiB))
    images = Pulling(tmp_path / "images", disk)
    loops = (
        provisioner(storage, no_growth),
        lambda context: Populator(context, storage, images, Uploads()),
    )
    async with cluster(stand_ins=loops) as c, Background() as tasks:
        tasks.start(images.watch(), name="images")
        source = {"registry": {"url": "docker://lab/disk:latest"}}
        await c.client.create(DataVolume, volume(source=source))

        async def has_failed():
            return (await of(c)).status.restart_count == 4

        await c.until(has_failed)
    pauses = [round(later - begun) - 1 for begun, later in pairwise(images.times)]
    assert all(map(le, (10, 20, 40), pauses))


async def test_an_import_populates_the_volume(loops, web, storage):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))
        await c.until(partial(is_in, c, "Succeeded"))
        stored = await content(c, storage)
        assert stored.populated
        assert stored.disk.path.read_bytes()[:7] == b"letters"
        assert stored.disk.path.stat().st_size == 16 * MiB


async def test_a_failed_import_is_retried_with_backoff(loops, web):
    web += [PopulationError("got 404. Status: 404 Not Found")] * 3
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))

        async def has_failed(times):
            return (await of(c)).status.restart_count == times

        await c.until(partial(has_failed, 1))
        status = (await of(c)).status
        running = next(each for each in status.conditions if each.type == "Running")
        assert status.phase == "ImportInProgress"
        assert (running.reason, running.message) == ("Error", "got 404. Status: 404 Not Found")
        begun = asyncio.get_running_loop().time()
        await c.until(partial(has_failed, 3))
        assert asyncio.get_running_loop().time() - begun >= 10 + 20
        await c.until(partial(is_in, c, "Succeeded"))
        assert (await of(c)).status.restart_count == 3
        assert "Error" in await reasons(c)


async def test_a_download_that_is_no_disk_is_retried(loops, web, storage):
    web += [b"<html>try again later</html>"]
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))
        await c.until(partial(is_in, c, "Succeeded"))
        assert (await of(c)).status.restart_count == 1
        assert (await content(c, storage)).disk.path.read_bytes()[:7] == b"letters"


async def test_a_disk_that_is_too_large_is_not_retried(loops, web):
    web += [b"letters".ljust(17 * MiB, b".")]
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))

        async def has_failed_twice():
            return (await of(c)).status.restart_count == 2

        await c.until(has_failed_twice)
        running = next(e for e in (await of(c)).status.conditions if e.type == "Running")
        assert "A larger PVC is required" in running.message


async def test_killed_controllers_resume(loops, web, storage):
    web += [PopulationError("not yet")] * 2
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))
        for _ in range(6):
            await asyncio.sleep(0.3)
            await c.crash_loops()
            c.start_loops()
        await c.until(partial(is_in, c, "Succeeded"))
        assert (await content(c, storage)).populated


async def test_a_clone_waits_for_its_source(loops, web, storage):
    web += [PopulationError("not yet")]
    async with cluster(stand_ins=loops) as c:
        copied = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.create(DataVolume, volume("copy", copied, size=""))
        await c.until(partial(is_in, c, "Pending", "copy"))
        await c.client.create(DataVolume, volume(source=HTTP))
        await c.until(partial(is_in, c, "CloneScheduled", "copy"))
        await c.until(partial(is_in, c, "Succeeded", "copy"))
        assert await is_in(c, "Succeeded")
        assert (await content(c, storage, "copy")).capacity_bytes == 16 * MiB
        reported = await reasons(c, "copy")
        assert {"CloneWithoutSource", "ImportPVCNotReady", "CloneSucceeded"} <= set(reported)


async def test_a_source_in_use_is_not_cloned(loops):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        await c.client.create(Pod, user_of("disk"))
        copied = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.create(DataVolume, volume("copy", copied, size=""))
        await c.until(partial(is_in, c, "CloneScheduled", "copy"))
        await asyncio.sleep(20)
        assert await is_in(c, "CloneScheduled", "copy")
        assert "CloneSourceInUse" in await reasons(c, "copy")
        await c.client.delete(Pod, Key("default", "user"), grace_seconds=0)
        await c.until(partial(is_in, c, "Succeeded", "copy"))


async def test_a_clone_sees_changes_of_its_source_during_the_write_of_its_status(
    loops, storage, monkeypatch
):
    report = Populator.report

    async def slowly(self, job, change):
        await report(self, job, change)
        if change["metadata"]["annotations"][population.REASON] == "CloneSourceInUse":
            await c.client.delete(Pod, Key("default", "user"), grace_seconds=0)
            await asyncio.sleep(5)

    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        await c.client.create(Pod, user_of("disk"))
        monkeypatch.setattr(Populator, "report", slowly)
        copied = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.create(DataVolume, volume("copy", copied, size=""))
        await c.until(partial(is_in, c, "Succeeded", "copy"), filling.RETRY_SECONDS / 2)


async def test_a_clone_starts_once_no_pod_uses_the_source(loops, storage):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        held = opened((await content(c, storage)).disk.path, os.O_RDWR)
        copied = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.create(DataVolume, volume("copy", copied, size=""))
        await asyncio.sleep(20)
        assert await is_in(c, "CloneScheduled", "copy")
        os.close(held)
        await c.until(partial(is_in, c, "Succeeded", "copy"))


async def test_a_failed_clone_keeps_its_backoff_whatever_happens_to_its_source(loops, storage):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        (await content(c, storage)).disk.path.unlink()
        copied = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.create(DataVolume, volume("copy", copied, size=""))

        async def has_failed():
            return (await of(c, "copy")).status.restart_count > 0

        await c.until(has_failed)
        for each in range(5):
            labels = {"metadata": {"labels": {"look": str(each)}}}
            await c.client.patch(PersistentVolumeClaim, Key("default", "disk"), labels)
            await asyncio.sleep(1)
        assert (await of(c, "copy")).status.restart_count == 1
        await asyncio.sleep(filling.MIN_BACKOFF_SECONDS)
        assert (await of(c, "copy")).status.restart_count == 2


async def test_a_data_source_resolves_to_its_claim(loops):
    async with cluster(stand_ins=loops) as c:
        reference = {"kind": "DataSource", "name": "golden"}
        await c.client.create(DataVolume, volume("copy", size="", sourceRef=reference))
        await c.until(partial(is_in, c, "Pending", "copy"))
        await c.client.create(DataVolume, volume())
        named = {"source": {"pvc": {"name": "disk", "namespace": "default"}}}
        metadata = {"name": "golden", "namespace": "default"}
        await c.client.create(DataSource, {"metadata": metadata, "spec": named})
        await c.until(partial(is_in, c, "Succeeded", "copy"))


async def test_a_data_source_may_refer_to_another_that_gets_its_source_later(loops):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        for name, source in (("newest", {"dataSource": {"name": "golden"}}), ("golden", {})):
            metadata = {"name": name, "namespace": "default"}
            document = {"metadata": metadata, "spec": {"source": source}}
            await c.client.create(DataSource, document)
        reference = {"kind": "DataSource", "name": "newest"}
        await c.client.create(DataVolume, volume("copy", size="", sourceRef=reference))

        async def is_reported():
            conditions = (await of(c, "copy")).status.conditions
            why = "Empty source field in 'golden'. DataSource may not be ready yet"
            return any(each.message == why for each in conditions)

        await c.until(is_reported)
        source = {"pvc": {"name": "disk", "namespace": "default"}}
        await c.client.patch(DataSource, Key("default", "golden"), {"spec": {"source": source}})
        await c.until(partial(is_in, c, "Succeeded", "copy"))


async def test_the_status_of_data_sources_follows_their_claims(loops):
    claim = {"name": "disk", "namespace": "default"}
    async with cluster(stand_ins=loops) as c:
        for name, source in (("newest", {"dataSource": {"name": "golden"}}), ("golden", {})):
            metadata = {"name": name, "namespace": "default"}
            document = {"metadata": metadata, "spec": {"source": source}}
            await c.client.create(DataSource, document)

        async def has_reason(reason, source=None):
            for name in ("golden", "newest"):
                status = (await c.client.get(DataSource, name, "default")).status
                if [each.reason for each in status.conditions] != [reason]:
                    return False
                if status.source != source and msgspec.to_builtins(status.source) != source:
                    return False
            return True

        async def mean(source):
            change = {"spec": {"source": source}}
            await c.client.patch(DataSource, Key("default", "golden"), change)

        await c.until(partial(has_reason, "NoSource"))
        await mean({"pvc": claim})
        await c.until(partial(has_reason, "NotFound"))
        await c.client.create(DataVolume, volume(source={"upload": {}}))
        await c.until(partial(has_reason, "UploadReady"))
        await c.client.delete(DataVolume, Key("default", "disk"))
        await c.until(partial(has_reason, "NotFound"))
        labels = {"instancetype.kubevirt.io/default-instancetype": "u1.small", "app": "web"}
        document = volume()
        document["metadata"]["labels"] = labels
        await c.client.create(DataVolume, document)
        await c.until(partial(has_reason, "Ready", {"pvc": claim}))
        golden = await c.client.get(DataSource, "golden", "default")
        assert golden.metadata.labels == {
            "instancetype.kubevirt.io/default-instancetype": "u1.small"
        }
        await mean({"pvc": {"name": "disk", "namespace": None}})
        await c.until(partial(has_reason, "Ready", {"pvc": {"name": "disk"}}))
        await c.client.delete(DataSource, Key("default", "golden"))

        async def dangles():
            newest = await c.client.get(DataSource, "newest", "default")
            message = 'DataSource.cdi.kubevirt.io "golden" not found'
            return [each.message for each in newest.status.conditions] == [message]

        await c.until(dangles)


@pytest.mark.parametrize(
    "odd",
    [
        ["made", "before", "it", "had", "fields"],
        {"conditions": {"Ready": True}, "phase": "Ready"},
        {"source": {"snapshot": {"name": "old"}, "dataSource": {"name": "newest"}}, "more": {}},
    ],
)
async def test_an_invalid_status_of_a_data_source_is_overwritten(loops, odd):
    """Versions before took any status; what a DataSource means counts all the same."""
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        claim = {"pvc": {"name": "disk", "namespace": "default"}}
        kept = {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataSource",
            "metadata": {"name": "golden", "namespace": "default", "uid": "of-old"},
            "spec": {"source": claim},
            "status": odd,
        }
        store = c.server.store
        await store.write("datasources.cdi.kubevirt.io", Key("default", "golden"), kept)
        reference = {"kind": "DataSource", "name": "golden"}
        await c.client.create(DataVolume, volume("copy", size="", sourceRef=reference))
        await c.until(partial(is_in, c, "Succeeded", "copy"))
        found = store.latest("datasources.cdi.kubevirt.io", Key("default", "golden"))
        status = found.document()["status"]
        assert status.keys() == {"source", "conditions"}
        assert status["source"] == claim
        assert [each["reason"] for each in status["conditions"]] == ["Ready"]
        await asyncio.sleep(60)
        assert store.latest("datasources.cdi.kubevirt.io", Key("default", "golden")) is found


async def test_an_upload_target_waits_for_the_upload(loops):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source={"upload": {}}))
        await c.until(partial(is_in, c, "UploadReady"))
        claim = await c.client.get(PersistentVolumeClaim, "disk", "default")
        assert claim.metadata.annotations[population.READY] == "true"
        assert claim.metadata.annotations[population.PHASE] == population.RUNNING


async def test_the_claim_and_the_volume_are_deleted_with_the_data_volume(loops, storage, tmp_path):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source={"upload": {}}))
        await c.until(partial(is_in, c, "UploadReady"))
        await c.client.delete(DataVolume, Key("default", "disk"))

        async def is_gone():
            try:
                await c.client.get(PersistentVolumeClaim, "disk", "default")
            except NotFound:
                return not list(storage.volumes())
            return False

        await c.until(is_gone)
        assert not list((tmp_path / "storage" / "filling").iterdir())


async def test_population_of_a_deleted_claim_is_cancelled(loops, monkeypatch):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def fill(*_):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(Sources, "populate", fill)
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume(source=HTTP))
        await begun.wait()
        assert not ended.is_set()
        await c.client.delete(DataVolume, Key("default", "disk"))
        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_populated_claim_is_left_alone(loops, monkeypatch):
    async with cluster(stand_ins=loops) as c:
        await c.client.create(DataVolume, volume())
        await c.until(partial(is_in, c, "Succeeded"))
        reported = []

        async def fail(_self, job, _change):
            reported.append(job.key)

        monkeypatch.setattr(Populator, "report", fail)
        await c.crash_loops()
        c.start_loops()
        labels = {"metadata": {"labels": {"look": "again"}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "disk"), labels)
        await asyncio.sleep(60)
        assert reported == []


async def test_the_claim_is_created_once_a_foreign_one_of_its_name_is_gone(loops):
    async with cluster(stand_ins=loops) as c:
        metadata = {"name": "disk", "namespace": "default"}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        await c.client.create(PersistentVolumeClaim, {"metadata": metadata, "spec": spec})
        await c.client.create(DataVolume, volume())
        await asyncio.sleep(60)
        assert await is_in(c, "Pending")
        await c.client.delete(PersistentVolumeClaim, Key("default", "disk"))
        await c.until(partial(is_in, c, "Succeeded"), 10)


async def test_a_foreign_claim_is_reported_and_left_alone(loops):
    async with cluster(stand_ins=loops) as c:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        }
        metadata = {"name": "disk", "namespace": "default"}
        await c.client.create(PersistentVolumeClaim, {"metadata": metadata, "spec": spec})
        await c.client.create(DataVolume, volume())

        async def is_reported():
            return "ErrResourceExists" in await reasons(c)

        await c.until(is_reported)
        assert await is_in(c, "Pending")


def user_of(claim):
    return {
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "nodeName": "elsewhere",
            "containers": [{"name": "main", "image": "x"}],
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }
