"""Controller of DataSources: resolves what each refers to, and reports whether that is ready."""

from collections.abc import Mapping

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.cdi.datasource import DataSource, StoredDataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.kinds import DATA_SOURCE
from corral.api.object import Key
from corral.api.patch.merge import difference
from corral.api.time import rfc3339
from corral.controllers.datavolume import datasource_status, plan as plans
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, version_of
from corral.reconcile.workqueue import WorkQueue

Claim = PersistentVolumeClaim


def controller(context: ControllerContext) -> Controller[Key]:
    loop = DataSources(context)
    return Controller(
        "datasource",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.references, loop.claims, loop.volumes),
    )


class DataSources:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.references = context.informers.of(StoredDataSource, kind=DATA_SOURCE)
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(DataVolume)
        self._context = context
        self._client = context.client
        self.references.index(_claim_of)
        self.references.index(_named_by)
        self.references.handle(self._reference_changed)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)

    async def reconcile(self, key: Key) -> None:
        """Sync status and labels of one DataSource."""
        reference = self.references.get(key)
        if reference is None or is_being_deleted(reference):
            return
        status, labels = datasource_status.decide(reference, self._observe(reference))
        if labels:
            change = {"metadata": {"labels": dict(labels)}}
            reference = await self._client.patch(StoredDataSource, key, change, kind=DATA_SOURCE)
        before = reference.status if isinstance(reference.status, dict) else {}
        if change := difference(before, msgspec.to_builtins(status)):
            patch = {"metadata": {"resourceVersion": version_of(reference)}, "status": change}
            await self._client.patch(
                StoredDataSource, key, patch, subresource="status", kind=DATA_SOURCE
            )

    def _observe(self, reference: DataSource) -> datasource_status.Observed:
        other = plans.target_key_of(reference)
        named = self.references.get(other) if other is not None else None
        claim = plans.claim_key_of(named or reference)
        return datasource_status.Observed(
            named=named,
            claim=self.claims.get(claim) if claim is not None else None,
            volume=self.volumes.get(claim) if claim is not None else None,
            now=rfc3339(self._context.clock()),
        )

    def _reference_changed(self, old: DataSource | None, new: DataSource | None) -> None:
        reference = new or old
        if reference is not None:
            self._enqueue(reference.key)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        claim = new or old
        if claim is None:
            return
        if old is None or new is None or labels_of(old) != labels_of(new):
            self._enqueue_for_claim(key_of(claim))

    def _volume_changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        volume = new or old
        if volume is not None and _fingerprint(old) != _fingerprint(new):
            self._enqueue_for_claim(volume.key)

    def _enqueue_for_claim(self, claim: Key) -> None:
        """Enqueue the DataSources that refer to a claim."""
        for reference in self.references.indexed(_claim_of, str(claim)):
            self._enqueue(reference.key)

    def _enqueue(self, key: Key) -> None:
        """Enqueue a DataSource, and those that refer to it."""
        self.queue.add(key)
        for referrer in self.references.indexed(_named_by, str(key)):
            self.queue.add(referrer.key)


def _claim_of(reference: DataSource) -> list[str]:
    key = plans.claim_key_of(reference)
    return [str(key)] if key else []


def _named_by(reference: DataSource) -> list[str]:
    key = plans.target_key_of(reference)
    return [str(key)] if key else []


def _fingerprint(volume: DataVolume | None) -> tuple[str, Mapping[str, str]] | None:
    """Return the fields of a DataVolume that matter to a DataSource."""
    return (volume.status.phase, volume.metadata.labels) if volume is not None else None
