"""Claims and volumes: how they find each other, and when they go."""

import asyncio

import pytest
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass
from tests.sim import provisioner
from tests.sim.cluster import Faults, cluster

from corral.api.errors import Conflict, NotFound
from corral.api.kinds.storage.common import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    DEFAULT_CLASS,
    PROVISIONER,
    SELECTED_NODE,
)
from corral.api.object import Key

pytestmark = pytest.mark.looptime


def claim(name="data", size="1Gi", **spec):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def volume(name="disk", size="1Gi", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "hostPath": {"path": "/srv/disk"},
            **spec,
        },
    }


async def claim_of(c, name="data"):
    return await c.client.get(PersistentVolumeClaim, name, "default")


async def volume_of(c, name="disk"):
    return await c.client.get(PersistentVolume, name)


async def is_gone(c, view, key):
    try:
        await c.client.get(view, key.name, key.namespace)
    except NotFound:
        return True
    return False


async def claim_is(c, phase, name="data"):
    async def reached():
        return (await claim_of(c, name)).status.phase == phase

    await c.until(reached)
    return await claim_of(c, name)


async def volume_is(c, phase, name="disk"):
    async def reached():
        return (await volume_of(c, name)).status.phase == phase

    await c.until(reached)
    return await volume_of(c, name)


async def events_of(c, name="data"):
    await asyncio.sleep(1)
    return [(event.reason, event.message) for event in await c.events(name)]


async def class_is_there(c):
    async def there():
        return bool((await c.client.list(StorageClass)).items)

    await c.until(there)


async def test_a_claim_is_bound_to_a_volume_of_the_default_class():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        bound = await claim_is(c, "Bound")
        assert bound.spec.storageClassName == "corral"
        assert bound.spec.volumeName == f"pvc-{bound.metadata.uid}"
        assert bound.status.capacity == {"storage": "1Gi"}
        assert bound.status.accessModes == ["ReadWriteOnce"]
        assert bound.metadata.annotations[PROVISIONER] == "corral.dev/directory"
        assert BIND_COMPLETED in bound.metadata.annotations
        made = await volume_is(c, "Bound", bound.spec.volumeName)
        assert (made.spec.claimRef.name, made.spec.claimRef.uid) == ("data", bound.metadata.uid)
        assert [reason for reason, _ in await events_of(c)] == ["ExternalProvisioning"]
        await c.client.delete(PersistentVolumeClaim, bound_key := Key("default", "data"))
        await c.until(lambda: is_gone(c, PersistentVolumeClaim, bound_key))
        await c.until(lambda: is_gone(c, PersistentVolume, Key("", made.metadata.name)))


async def test_a_claim_without_a_class_gets_a_default_class_created_later():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        unmark = {"metadata": {"annotations": {DEFAULT_CLASS: "false"}}}
        await c.client.patch(StorageClass, Key("", "corral"), unmark)
        await c.client.create(PersistentVolumeClaim, claim())
        reason, message = (await events_of(c))[0]
        assert reason == "FailedBinding"
        assert message == (
            "no persistent volumes available for this claim and no storage class is set"
        )
        assert (await claim_of(c)).spec.storageClassName is None
        mark = {"metadata": {"annotations": {DEFAULT_CLASS: "true"}}}
        await c.client.patch(StorageClass, Key("", "corral"), mark)
        assert (await claim_is(c, "Bound")).spec.storageClassName == "corral"


async def test_a_claim_is_bound_to_the_smallest_matching_volume():
    async with cluster() as c:
        for name, size in (("large", "9Gi"), ("small", "500Mi"), ("right", "2Gi")):
            await c.client.create(PersistentVolume, volume(name, size))
        await volume_is(c, "Available", "large")
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        bound = await claim_is(c, "Bound")
        assert (bound.spec.volumeName, bound.status.capacity) == ("right", {"storage": "2Gi"})
        taken = await volume_is(c, "Bound", "right")
        assert taken.metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
        await c.client.delete(PersistentVolumeClaim, Key("default", "data"))
        await volume_is(c, "Released", "right")  # it is kept, and offered to nobody
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        assert (await claim_is(c, "Bound")).spec.volumeName == "large"


async def test_a_claim_is_bound_to_a_volume_created_later():
    async with cluster() as c:
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        assert [reason for reason, _ in await events_of(c)] == ["FailedBinding"]
        await c.client.create(PersistentVolume, volume())
        await claim_is(c, "Bound")


async def test_a_claim_with_a_volume_name_is_bound_to_that_volume_or_reports_why_not():
    async with cluster() as c:
        await c.client.create(PersistentVolume, volume("small", "500Mi"))
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="", volumeName="small"))
        assert await events_of(c) == [
            (
                "VolumeMismatch",
                'Cannot bind to requested volume "small": requested PV is too small',
            )
        ]
        await c.client.create(
            PersistentVolumeClaim, claim("other", storageClassName="", volumeName="later")
        )
        await c.client.create(PersistentVolume, volume("later"))
        assert (await claim_is(c, "Bound", "other")).spec.volumeName == "later"
        await c.client.create(
            PersistentVolumeClaim, claim("third", storageClassName="", volumeName="later")
        )
        assert await events_of(c, "third") == [
            ("FailedBinding", 'volume "later" already bound to a different claim.')
        ]


async def test_a_volume_with_a_claim_ref_is_bound_to_that_claim_only():
    async with cluster() as c:
        kept = volume(claimRef={"namespace": "default", "name": "mine"})
        await c.client.create(PersistentVolume, kept)
        await volume_is(c, "Available")
        await c.client.create(PersistentVolumeClaim, claim("theirs", storageClassName=""))
        await events_of(c, "theirs")
        assert (await claim_of(c, "theirs")).status.phase == "Pending"
        await c.client.create(PersistentVolumeClaim, claim("mine", storageClassName=""))
        assert (await claim_is(c, "Bound", "mine")).spec.volumeName == "disk"


async def test_a_claim_reports_its_missing_class_until_it_exists():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="fast"))
        assert await events_of(c) == [
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')
        ]
        fast = {"metadata": {"name": "fast"}, "provisioner": "corral.dev/directory"}
        await c.client.create(StorageClass, fast)
        await claim_is(c, "Bound")


async def test_a_claim_whose_volume_is_deleted_is_lost():
    async with cluster() as c:
        await c.client.create(PersistentVolume, volume())
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        await claim_is(c, "Bound")
        await c.client.delete(PersistentVolume, Key("", "disk"))
        await asyncio.sleep(5)
        held = await volume_of(c)  # its claim holds it
        assert held.metadata.deletionTimestamp is not None
        await c.client.patch(PersistentVolume, Key("", "disk"), {"metadata": {"finalizers": None}})
        lost = await claim_is(c, "Lost")
        assert lost.status.capacity is None
        assert (
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        ) in await events_of(c)


async def test_a_released_volume_without_a_deleter_fails():
    async with cluster() as c:
        await c.client.create(PersistentVolume, volume(persistentVolumeReclaimPolicy="Delete"))
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        await claim_is(c, "Bound")
        await c.client.delete(PersistentVolumeClaim, Key("default", "data"))
        failed = await volume_is(c, "Failed")
        assert failed.status.message == (
            'error getting deleter volume plugin for volume "disk": '
            "no deletable volume plugin matched"
        )
        assert [reason for reason, _ in await events_of(c, "disk")] == ["VolumeFailedDelete"]


async def test_a_claim_that_waits_for_its_first_consumer_reports_it():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await c.client.create(StorageClass, LATE)
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="late"))
        assert await events_of(c) == [
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
        ]
        assert (await claim_of(c)).metadata.annotations is None


@pytest.mark.parametrize("seed", [*range(8), 29])
async def test_each_claim_gets_one_volume_in_spite_of_faults(seed):
    faults = Faults(seed=seed, fail=0.1, lose_answer=0.1, delay=0.5, cut=0.05, double=0.1)
    async with cluster(faults=faults, stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        names = [f"data{number}" for number in range(6)]
        for number in range(3):
            await c.client.create(PersistentVolume, volume(f"disk{number}"))
        for number, name in enumerate(names):
            given = {"storageClassName": ""} if number % 2 else {}
            await c.client.create(PersistentVolumeClaim, claim(name, **given))
            if number == 3:
                await c.crash_loops()
                c.start_loops()

        async def all_bound():
            phases = [(await claim_of(c, name)).status.phase for name in names]
            return phases == ["Bound"] * 6

        await c.until(all_bound, 300)
        await asyncio.sleep(60)
        claims = [await claim_of(c, name) for name in names]
        taken = {each.spec.volumeName: each.metadata.uid for each in claims}
        assert len(taken) == 6
        for each in (await c.client.list(PersistentVolume)).items:
            assert each.status.phase == "Bound"
            assert each.spec.claimRef.uid == taken[each.metadata.name]


# ----------------------------------------------------------------- protection


def pod(name, claim_name):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "elsewhere",
            "containers": [{"name": "compute", "image": "x"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": claim_name}},
            ],
        },
    }


async def test_a_claim_in_use_stays_until_its_pod_has_ended():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        key = Key("default", "data")
        await c.client.create(PersistentVolumeClaim, claim())
        await claim_is(c, "Bound")
        await c.client.create(Pod, pod("user", "data"))
        await c.client.delete(PersistentVolumeClaim, key)
        await asyncio.sleep(30)
        assert (await claim_of(c)).metadata.deletionTimestamp is not None
        ended = {"status": {"phase": "Succeeded"}}
        await c.client.patch(Pod, Key("default", "user"), ended, subresource="status")
        await c.until(lambda: is_gone(c, PersistentVolumeClaim, key))


async def test_a_claim_grows_only_if_its_class_allows_expansion():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        await claim_is(c, "Bound")
        more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "data"), more)
        assert (await claim_of(c)).spec.resources.requests == {"storage": "2Gi"}
        assert (await claim_of(c)).status.capacity == {"storage": "1Gi"}
        with pytest.raises(Conflict):
            await c.client.patch(
                PersistentVolumeClaim,
                Key("default", "data"),
                more | {"metadata": {"resourceVersion": "1"}},
            )


# ----------------------------------------------------------------- scheduling


LATE = {
    "metadata": {"name": "late"},
    "provisioner": "corral.dev/directory",
    "volumeBindingMode": "WaitForFirstConsumer",
}
HELPLESS = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def waiting(name="user", claim_name="data"):
    document = pod(name, claim_name)
    del document["spec"]["nodeName"]
    return document


async def unscheduled(c, text, name="user"):
    async def says_why():
        found = await c.client.get(Pod, name, "default")
        messages = [each.message for each in (found.status.conditions or ())]
        return messages == [f"0/1 nodes are available: {text}"]

    await c.until(says_why)


async def placed(c, name="user"):
    async def has_node():
        return (await c.client.get(Pod, name, "default")).spec.nodeName == "node0"

    await c.until(has_node)


async def test_a_pod_waits_for_its_claim_and_the_volume():
    async with cluster() as c:
        await c.client.create(Pod, waiting())
        await unscheduled(c, f'persistentvolumeclaim "data" not found. {HELPLESS}')
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        await unscheduled(c, f"pod has unbound immediate PersistentVolumeClaims. {HELPLESS}")
        await c.client.create(PersistentVolume, volume())
        await placed(c)


async def test_a_pod_is_scheduled_by_the_node_affinity_of_its_volume():
    async with cluster() as c:
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        await c.client.create(PersistentVolume, volume(nodeAffinity=affinity))
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        await c.client.create(Pod, waiting())
        await unscheduled(c, "1 node(s) had volume node affinity conflict.")
        label = {"metadata": {"labels": {"disk": "ssd"}}}
        await c.client.patch(Node, Key("", "node0"), label)
        await placed(c)


async def test_the_first_pod_selects_the_node_of_a_volume():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await c.client.create(StorageClass, LATE)
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="late"))
        await events_of(c)
        await c.client.create(Pod, waiting())
        await placed(c)
        bound = await claim_of(c)
        assert bound.status.phase == "Bound"
        assert bound.metadata.annotations[SELECTED_NODE] == "node0"
        assert "FailedScheduling" not in [event.reason for event in await c.events("user")]


async def test_an_existing_volume_is_bound_before_one_is_provisioned():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await c.client.create(StorageClass, LATE)
        await c.client.create(PersistentVolume, volume(storageClassName="late"))
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="late"))
        await volume_is(c, "Available")
        await c.client.create(Pod, waiting())
        await placed(c)
        assert (await claim_of(c)).spec.volumeName == "disk"


async def test_without_a_provisioner_a_pod_waits_for_a_volume_on_a_node():
    async with cluster() as c:
        local = LATE | {"provisioner": "kubernetes.io/no-provisioner"}
        await c.client.create(StorageClass, local)
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="late"))
        await c.client.create(Pod, waiting())
        await unscheduled(c, "1 node(s) didn't find available persistent volumes to bind.")
        await c.client.create(PersistentVolume, volume(storageClassName="late"))
        await placed(c)


async def test_a_read_write_once_pod_claim_is_used_by_one_pod():
    async with cluster() as c:
        alone = {"accessModes": ["ReadWriteOncePod"]}
        await c.client.create(PersistentVolume, volume(**alone))
        await c.client.create(PersistentVolumeClaim, claim(storageClassName="", **alone))
        await c.client.create(Pod, waiting("first"))
        await placed(c, "first")
        await c.client.create(Pod, waiting("second"))
        await unscheduled(
            c,
            "1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode.",
            "second",
        )
        await c.client.delete(Pod, Key("default", "first"), grace_seconds=0)
        await placed(c, "second")


async def test_a_terminating_claim_gets_no_new_pod():
    async with cluster() as c:
        await c.client.create(PersistentVolume, volume())
        await c.client.create(PersistentVolumeClaim, claim(storageClassName=""))
        await claim_is(c, "Bound")
        await c.client.create(Pod, pod("user", "data"))
        await c.client.delete(PersistentVolumeClaim, Key("default", "data"))
        await c.client.create(Pod, waiting("late"))
        await unscheduled(c, f'persistentvolumeclaim "data" is being deleted. {HELPLESS}', "late")


async def storage_of(c, name, identifier):
    metadata = {"name": name, "labels": {"corral.dev/storage": identifier}}
    await c.client.create(Node, {"metadata": metadata})


async def test_nodes_of_a_second_host_get_a_class_that_waits_for_pods():
    async with cluster() as c:
        await class_is_there(c)
        await storage_of(c, "one", "s1")
        await storage_of(c, "other", "s1")
        await asyncio.sleep(5)
        assert [each.metadata.name for each in (await c.client.list(StorageClass)).items] == [
            "corral"
        ]
        await storage_of(c, "two", "s2")

        async def both():
            return len((await c.client.list(StorageClass)).items) == 2

        await c.until(both)
        found = await c.client.get(StorageClass, "corral-wait")
        assert found.volumeBindingMode == "WaitForFirstConsumer"
        await c.client.create(PersistentVolumeClaim, claim())

        async def classified():
            return (await claim_of(c)).spec.storageClassName == "corral-wait"

        await c.until(classified)


async def test_pods_with_unbound_volumes_are_spread_over_the_nodes():
    async with cluster(nodes=2) as c:  # no provisioner: all of them wait
        await c.client.create(StorageClass, LATE)
        names = [f"data{number}" for number in range(4)]
        for name in names:
            await c.client.create(PersistentVolumeClaim, claim(name, storageClassName="late"))
            user = waiting(f"user-{name}", name)
            requests = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
            user["spec"]["containers"][0] |= requests
            await c.client.create(Pod, user)

        async def are_spread():
            claims = [await claim_of(c, name) for name in names]
            selected = [(each.metadata.annotations or {}).get(SELECTED_NODE) for each in claims]
            return sorted(filter(None, selected)) == ["node0", "node0", "node1", "node1"]

        await c.until(are_spread, 120)
