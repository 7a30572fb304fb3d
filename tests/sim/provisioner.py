"""Plays who makes and deletes volumes, where a test has no storage: objects only."""

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.storage.common import (
    CORRAL_PROVISIONER,
    DELETE,
    PROVISIONED_BY,
    PROVISIONER,
    RELEASED,
    class_name,
)
from corral.api.object import Key
from corral.reconcile.controller import Controller
from corral.reconcile.objects import annotations_of, key_of, object_reference, uid_of
from corral.reconcile.workqueue import WorkQueue


def controller(context):
    """The controller of an external provisioner: one volume for each claim that asks for it."""
    queue = WorkQueue()
    claims = context.informers.of(PersistentVolumeClaim)
    volumes = context.informers.of(PersistentVolume)
    classes = context.informers.of(StorageClass)

    def changed(_old, new):
        if new is not None:
            queue.add(key_of(new))

    async def reconcile(key):
        if not key.namespace:
            volume = volumes.get(key)
            if volume is not None and _is_over(volume):
                await context.client.delete(PersistentVolume, key)
            return
        claim = claims.get(key)
        if claim is None or annotations_of(claim).get(PROVISIONER) != CORRAL_PROVISIONER:
            return
        name = f"pvc-{uid_of(claim)}"
        if claim.spec.volumeName or volumes.get(Key("", name)) is not None:
            return
        storage_class = classes.get(Key("", class_name(claim)))
        await context.client.create(PersistentVolume, volume_for(claim, name, storage_class))

    claims.handle(changed)
    volumes.handle(changed)
    return Controller("provisioner", reconcile, queue=queue, sources=(claims, volumes, classes))


def _is_over(volume):
    return (volume.status.phase, volume.spec.persistentVolumeReclaimPolicy) == (RELEASED, DELETE)


def volume_for(claim, name, storage_class):
    return {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: CORRAL_PROVISIONER}},
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "accessModes": claim.spec.accessModes,
            "volumeMode": claim.spec.volumeMode,
            "storageClassName": claim.spec.storageClassName,
            "persistentVolumeReclaimPolicy": storage_class.reclaimPolicy,
            "claimRef": object_reference(claim),
            "csi": {"driver": "corral.dev", "volumeHandle": name},
        },
    }
