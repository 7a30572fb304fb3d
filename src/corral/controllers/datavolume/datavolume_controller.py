"""Controller of DataVolumes: creates their claims, writes their status.

The node that has the volume fills it (``corral.node.storage.population``) and reports progress in
annotations of the claim; the garbage collector deletes the claim after its DataVolume.
"""

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists, ApiError
from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datasource import DataSource, StoredDataSource
from corral.api.kinds.cdi.datavolume import DataVolume, DataVolumeStatus
from corral.api.kinds.cdi.kinds import DATA_SOURCE
from corral.api.object import Document, Key
from corral.api.patch.merge import difference
from corral.api.time import rfc3339
from corral.controllers.datavolume import plan as plans
from corral.controllers.datavolume.plan import Observed, Plan
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import (
    annotations_of,
    is_being_deleted,
    key_of,
    owners_of,
    version_of,
)
from corral.reconcile.ownership import require_not_deleted
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "datavolume-controller"
Claim = PersistentVolumeClaim


def controller(context: ControllerContext) -> Controller[Key]:
    loop = DataVolumes(context)
    return Controller(
        "datavolume",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.volumes, loop.claims, loop.classes, loop.references),
        workers=32,
    )


class DataVolumes:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        retry_on_quota_increase(context, self.queue)
        self.volumes = context.informers.of(DataVolume)
        self.claims = context.informers.of(Claim)
        self.classes = context.informers.of(StorageClass)
        self.references = context.informers.of(StoredDataSource, kind=DATA_SOURCE)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self.volumes.index(self._source_claims)
        self.volumes.index(_reference_keys)
        self.volumes.handle(self._volume_changed)
        self.claims.handle(self._claim_changed)
        self.classes.handle(self._class_changed)
        self.references.handle(self._reference_changed)

    async def reconcile(self, key: Key) -> None:
        """Sync one DataVolume."""
        volume = self.volumes.get(key)
        if volume is None or is_being_deleted(volume):
            return
        decided = self._decide(volume, self.claims.get(key))
        if decided.create is not None:
            decided = await self._create(volume, decided.create, decided)
        elif decided.adopt is not None:
            await require_not_deleted(self._client, volume)
            claim = await self._client.patch(Claim, key, decided.adopt)
            decided = self._decide(volume, claim)
        await self._update_status(volume, decided)

    def _decide(self, volume: DataVolume, claim: Claim | None) -> Plan:
        named = plans.reference_key(volume)
        reference = self._resolve(named) if named else None
        source_claim = plans.source_claim_key(plans.source_of(volume, reference))
        return plans.plan(
            volume,
            Observed(
                claim=claim,
                reference=reference,
                source_claim=self.claims.get(source_claim) if source_claim else None,
                classes=list(self.classes.items()),
                now=rfc3339(self._context.clock()),
            ),
        )

    def _resolve(self, key: Key) -> DataSource | None:
        """Return the DataSource that a reference resolves to: itself, or the one that it names."""
        reference = self.references.get(key)
        other = plans.target_key_of(reference) if reference is not None else None
        return self.references.get(other) if other is not None else reference

    async def _create(self, volume: DataVolume, document: Document, decided: Plan) -> Plan:
        """Create the claim; return the plan for what there is then."""
        try:
            claim = await self._client.create(Claim, document)
        except AlreadyExists:
            claim = await self._client.get(Claim, volume.key.name, volume.key.namespace)
        except ApiError as error:
            self._recorder.event(volume, "Warning", "ErrClaimNotValid", str(error))
            await self._update_status(volume, decided)
            raise
        return self._decide(volume, claim)

    async def _update_status(self, volume: DataVolume, decided: Plan) -> None:
        """Write the status if it differs, then record the events."""
        if decided.status != volume.status:
            change = _patch(volume.status, decided.status)
            change["metadata"] = {"resourceVersion": version_of(volume)}
            await self._client.patch(DataVolume, volume.key, change, subresource="status")
        for event in decided.events:
            self._recorder.event(volume, event.type, event.reason, event.message)

    def _source_claims(self, volume: DataVolume) -> list[str]:
        """Return the claims that a DataVolume waits for: only those that it names itself."""
        key = plans.source_claim_key(plans.source_of(volume, None))
        return [str(key)] if key else []

    def _volume_changed(self, _old: DataVolume | None, new: DataVolume | None) -> None:
        if new is not None:
            self.queue.add(new.key)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        claim = new or old
        if claim is None:
            return
        key = key_of(claim)
        namespace, annotations = key.namespace, annotations_of(claim)
        for owner in owners_of(claim):
            if owner.controller and owner.kind == DataVolume.kind:
                self.queue.add(Key(namespace, owner.name))
        for name in {key.name, annotations.get(population.POPULATED_FOR, key.name)}:
            if self.volumes.get(Key(namespace, name)) is not None:
                self.queue.add(Key(namespace, name))
        if old is None or new is None:
            for clone in self.volumes.indexed(self._source_claims, str(key)):
                self.queue.add(clone.key)
            for reference in self.references.items():
                if plans.claim_key_of(reference) == key:
                    self._reference_changed(None, reference)

    def _class_changed(self, _old: StorageClass | None, new: StorageClass | None) -> None:
        if new is None:
            return
        for volume in self.volumes.items():
            if not volume.status.claim_name:
                self.queue.add(volume.key)

    def _reference_changed(self, old: DataSource | None, new: DataSource | None) -> None:
        reference = new or old
        if reference is None:
            return
        referrers = [one.key for one in self.references.items() if _refers_to(one, reference)]
        for key in (reference.key, *referrers):
            for volume in self.volumes.indexed(_reference_keys, str(key)):
                self.queue.add(volume.key)


def _refers_to(one: DataSource, other: DataSource) -> bool:
    return plans.target_key_of(one) == other.key


def _reference_keys(volume: DataVolume) -> list[str]:
    key = plans.reference_key(volume)
    return [str(key)] if key else []


def _patch(old: DataVolumeStatus, new: DataVolumeStatus) -> Document:
    """Return the change of the status as a merge patch, which removes empty fields."""
    return {"status": difference(msgspec.to_builtins(old), msgspec.to_builtins(new))}
