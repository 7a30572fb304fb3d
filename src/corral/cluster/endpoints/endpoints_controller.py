"""Controller of endpoints: writes the EndpointSlices and Endpoints of each Service."""

from collections.abc import Sequence
from functools import partial

from lightkube.models.core_v1 import Endpoints, Pod, Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.api.errors import AlreadyExists, ApiError
from corral.api.object import Document, Key
from corral.cluster.endpoints import endpoints_object, mirror, slices
from corral.cluster.endpoints.members import (
    is_selecting,
    matches,
    members,
    selector_key,
    selector_keys,
    spec_of,
)
from corral.cluster.endpoints.slices import Changes
from corral.cluster.endpoints.trigger_time import Triggers
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, uid_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "endpoint-slice-mirroring-controller"
BATCH_SECONDS = 0.05
"""Minimum interval between two syncs of a Service. For Services with many pods it is as long as a
sync takes: a tenth of a second for a thousand."""
PODS_A_SECOND = 10_000


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller of endpoints, keyed by Service."""
    loop = ServiceEndpoints(context)
    return Controller("endpoints", loop.reconcile, queue=loop.queue, sources=loop.sources)


class ServiceEndpoints:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.services = context.informers.of(Service)
        self.pods = context.informers.of(Pod)
        self.slices = context.informers.of(EndpointSlice)
        self.endpoints = context.informers.of(Endpoints)
        self.sources = (self.services, self.pods, self.slices, self.endpoints)
        self._client = context.client
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._expected = Expectations[Key](context.monotonic)
        self._triggers = Triggers()
        self._next_sync: dict[Key, float] = {}
        """Earliest time of the next sync, by Service."""
        self._deleted: set[Key] = set()
        """Deleted Services, whose Endpoints are deleted by name."""
        self.services.index(selector_keys)
        self.pods.index(by_namespace)
        self.slices.index(_service_keys)
        self.services.handle(self._service_changed)
        self.pods.handle(self._pod_changed)
        self.slices.handle(self._slice_changed)
        self.endpoints.handle(self._endpoints_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync the slices of one Service with its pods, or with its Endpoints."""
        unmet = self._expected.unmet_seconds(key)
        if unmet:
            return Result(requeue_after=unmet)
        service = self.services.get(key)
        if service is None:
            await self._clean_up(key)
        elif is_selecting(service):
            await self._sync_pods(key, service)
        elif spec_of(service).type != "ExternalName":
            await self._mirror(key)
        return None

    async def _sync_pods(self, key: Key, service: Service) -> None:
        pods = members(service, self.pods.indexed(by_namespace, key.namespace))
        interval = max(BATCH_SECONDS, len(pods) / PODS_A_SECOND)
        self._next_sync[key] = self._monotonic() + interval
        trigger = self._triggers.time(service, pods)
        changes = slices.plan(
            slices.groups(service, pods),
            self._slices_of(key, slices.MANAGER),
            slices.frame(service, trigger),
        )
        # Slices mirrored while the Service had no selector are outdated.
        changes.delete.extend(self._slices_of(key, mirror.MANAGER))
        refused = await self._write(key, changes)
        present = self.endpoints.get(key)
        await self._write_endpoints(
            key, present, endpoints_object.plan(service, pods, present, trigger)
        )
        if refused:
            raise refused[0]

    async def _mirror(self, key: Key) -> None:
        endpoints = self.endpoints.get(key)
        mirrored = self._slices_of(key, mirror.MANAGER)
        if endpoints is None or not mirror.is_mirrored(endpoints):
            changes = Changes(delete=mirrored)
        else:
            if count := mirror.skipped(endpoints):
                text = (
                    f"A max of {mirror.MAX_ADDRESSES} addresses can be mirrored to EndpointSlices "
                    f"per Endpoints subset. {count} addresses were skipped"
                )
                self._recorder.event(endpoints, "Warning", "TooManyAddressesToMirror", text)
            changes = slices.plan(mirror.groups(endpoints), mirrored, mirror.frame(endpoints))
        refused = await self._write(key, changes)
        if refused:
            raise refused[0]

    async def _clean_up(self, key: Key) -> None:
        """Delete Endpoints and mirrored slices of a deleted Service; other slices have owners."""
        self._triggers.forget(key)
        self._next_sync.pop(key, None)
        endpoints = self.endpoints.get(key)
        if endpoints is not None and (key in self._deleted or endpoints_object.is_ours(endpoints)):
            await remove(self._client, Endpoints, key, uid_of(endpoints))
        self._deleted.discard(key)
        refused = await self._write(key, Changes(delete=self._slices_of(key, mirror.MANAGER)))
        if refused:
            raise refused[0]

    async def _write(self, key: Key, changes: Changes) -> list[ApiError]:
        if not changes:
            return []
        gone = [uid_of(each) for each in changes.delete]
        self._expected.expect(key, creations=len(changes.create), deletions=gone)
        refused = await for_each(changes.create, partial(self._create, key))
        refused += await for_each(changes.update, self._update)
        refused += await for_each(changes.delete, partial(self._delete, key))
        return refused

    async def _create(self, key: Key, document: Document) -> None:
        try:
            await self._client.create(EndpointSlice, document)
        except ApiError:
            self._expected.creation_observed(key)
            raise

    async def _update(self, change: tuple[EndpointSlice, Document]) -> None:
        before, patch = change
        await self._client.patch(EndpointSlice, key_of(before), patch)

    async def _delete(self, key: Key, gone: EndpointSlice) -> None:
        try:
            deleted = await remove(self._client, EndpointSlice, key_of(gone), uid_of(gone))
        except ApiError:
            self._expected.deletion_observed(key, uid_of(gone))
            raise
        if not deleted:
            self._expected.deletion_observed(key, uid_of(gone))

    async def _write_endpoints(
        self, key: Key, present: Endpoints | None, document: Document | None
    ) -> None:
        if document is None:
            return
        if present is not None:
            await self._client.patch(Endpoints, key, document)
            return
        try:
            await self._client.create(Endpoints, document)
        except AlreadyExists:
            self.queue.retry(key)  # the cache has yet to show it

    def _slices_of(self, key: Key, manager: str) -> list[EndpointSlice]:
        return [
            found
            for found in self.slices.indexed(_service_keys, str(key))
            if labels_of(found).get(slices.MANAGED_BY) == manager and not is_being_deleted(found)
        ]

    def _enqueue(self, key: Key) -> None:
        """Enqueue a Service now, or when its interval is over."""
        wait = self._next_sync.get(key, 0.0) - self._monotonic()
        if wait > 0:
            self.queue.add_after(key, wait)
        else:
            self.queue.add(key)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        if new is None:
            self._deleted.add(key)
            self._expected.forget(key)  # a new Service of that name must not wait for them
        self.queue.add(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _fingerprint(old) == _fingerprint(new):
            return
        for pod in (old, new):
            if pod is not None:
                for key in self._services_of(pod):
                    self._enqueue(key)

    def _services_of(self, pod: Pod) -> Sequence[Key]:
        labels, key = labels_of(pod), key_of(pod)
        return [
            key_of(service)
            for label, value in labels.items()
            for service in self.services.indexed(selector_keys, selector_key(key, label, value))
            if matches(service, labels)
        ]

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        service_keys = [
            service_key
            for each in (old, new)
            if each is not None
            for service_key in _service_keys(each)
        ]
        for service_key in dict.fromkeys(service_keys):
            key = Key(*service_key.split("/", 1))
            if old is None:
                self._expected.creation_observed(key)
            elif new is None or is_being_deleted(new):
                self._expected.deletion_observed(key, uid_of(old))
            self._enqueue(key)

    def _endpoints_changed(self, old: Endpoints | None, new: Endpoints | None) -> None:
        changed = new or old
        assert changed is not None
        self._enqueue(key_of(changed))


def _service_keys(found: EndpointSlice) -> Sequence[str]:
    """Return the Service of a slice that this controller wrote."""
    labels = labels_of(found)
    name = labels.get(slices.SERVICE_NAME)
    if not name or labels.get(slices.MANAGED_BY) not in (slices.MANAGER, mirror.MANAGER):
        return ()
    return (str(Key(key_of(found).namespace, name)),)


def _fingerprint(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod that matter to endpoints."""
    status, spec = pod.status, pod.spec
    conditions = (status and status.conditions) or ()
    return (
        labels_of(pod),
        is_being_deleted(pod),
        spec and (spec.nodeName, spec.hostname, spec.subdomain),
        status and (status.phase, status.podIP, status.podIPs),
        [(each.status, each.lastTransitionTime) for each in conditions if each.type == "Ready"],
    )
