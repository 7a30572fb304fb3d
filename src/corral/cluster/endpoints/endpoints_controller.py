"""Keeps what is told of each Service's endpoints up to date."""

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
    selector_word,
    selector_words,
    spec_of,
)
from corral.cluster.endpoints.slices import Changes
from corral.cluster.endpoints.trigger_time import Triggers
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, uid_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "endpoint-slice-mirroring-controller"
BATCH_SECONDS = 0.05
"""After a Service was told of, its next changes wait for so long for more of their kind.  Where
it has many pods, for as long as telling of so many takes: a thousand take a tenth of a second."""
PODS_A_SECOND = 10_000


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of endpoints, by Service."""
    loop = ServiceEndpoints(context)
    return Controller("endpoints", loop.reconcile, queue=loop.queue, sources=loop.sources)


class ServiceEndpoints:
    """The Services, the pods behind them, and what is told of both."""

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
        self._rested: dict[Key, float] = {}
        """When each Service may be told of again."""
        self._bereft: set[Key] = set()
        """Services that were seen to go: the Endpoints of their names go too."""
        self.services.index("selector", selector_words)
        self.pods.index("namespace", lambda pod: (key_of(pod).namespace,))
        self.slices.index("service", _service_words)
        self.services.handle(self._service_changed)
        self.pods.handle(self._pod_changed)
        self.slices.handle(self._slice_changed)
        self.endpoints.handle(self._endpoints_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring what is told of one Service in line with its pods, or with its Endpoints."""
        unmet = self._expected.unmet_seconds(key)
        if unmet:
            return Result(requeue_after=unmet)
        service = self.services.get(key)
        if service is None:
            await self._leave(key)
        elif is_selecting(service):
            await self._tell(key, service)
        elif spec_of(service).type != "ExternalName":
            await self._mirror(key)
        return None

    async def _tell(self, key: Key, service: Service) -> None:
        pods = members(service, self.pods.indexed("namespace", key.namespace))
        pause = max(BATCH_SECONDS, len(pods) / PODS_A_SECOND)
        self._rested[key] = self._monotonic() + pause
        trigger = self._triggers.time(service, pods)
        changes = slices.plan(
            slices.groups(service, pods),
            self._slices_of(key, slices.MANAGER),
            slices.frame(service, trigger),
        )
        # What was mirrored while the Service had no selector is no longer true.
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
                text = f"A max of {mirror.LARGEST} addresses can be mirrored to EndpointSlices per "
                text += f"Endpoints subset. {count} addresses were skipped"
                self._recorder.event(endpoints, "Warning", "TooManyAddressesToMirror", text)
            changes = slices.plan(mirror.groups(endpoints), mirrored, mirror.frame(endpoints))
        refused = await self._write(key, changes)
        if refused:
            raise refused[0]

    async def _leave(self, key: Key) -> None:
        """A Service is gone; its slices go with their owner, its Endpoints by their name."""
        self._triggers.forget(key)
        self._rested.pop(key, None)
        endpoints = self.endpoints.get(key)
        if endpoints is not None and (key in self._bereft or endpoints_object.is_ours(endpoints)):
            await remove(self._client, Endpoints, key, uid_of(endpoints))
        self._bereft.discard(key)
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
            asked = await remove(self._client, EndpointSlice, key_of(gone), uid_of(gone))
        except ApiError:
            self._expected.deletion_observed(key, uid_of(gone))
            raise
        if not asked:
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
            for found in self.slices.indexed("service", str(key))
            if labels_of(found).get(slices.MANAGED_BY) == manager and not is_being_deleted(found)
        ]

    def _look(self, key: Key) -> None:
        """Look at a Service now, or when enough may have come together."""
        wait = self._rested.get(key, 0.0) - self._monotonic()
        if wait > 0:
            self.queue.add_after(key, wait)
        else:
            self.queue.add(key)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        if new is None:
            self._bereft.add(key)
            self._expected.forget(key)  # the next one of the name must not wait for it
        self.queue.add(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _facts(old) == _facts(new):
            return
        for pod in (old, new):
            if pod is not None:
                for key in self._services_of(pod):
                    self._look(key)

    def _services_of(self, pod: Pod) -> Sequence[Key]:
        labels, key = labels_of(pod), key_of(pod)
        return [
            key_of(service)
            for label, value in labels.items()
            for service in self.services.indexed("selector", selector_word(key, label, value))
            if matches(service, labels)
        ]

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        words = [word for each in (old, new) if each is not None for word in _service_words(each)]
        for word in dict.fromkeys(words):
            key = Key(*word.split("/", 1))
            if old is None:
                self._expected.creation_observed(key)
            elif new is None or is_being_deleted(new):
                self._expected.deletion_observed(key, uid_of(old))
            self._look(key)

    def _endpoints_changed(self, old: Endpoints | None, new: Endpoints | None) -> None:
        changed = new or old
        assert changed is not None
        self._look(key_of(changed))


def _service_words(found: EndpointSlice) -> Sequence[str]:
    """The Service that a slice of ours tells of."""
    labels = labels_of(found)
    name = labels.get(slices.SERVICE_NAME)
    if not name or labels.get(slices.MANAGED_BY) not in (slices.MANAGER, mirror.MANAGER):
        return ()
    return (str(Key(key_of(found).namespace, name)),)


def _facts(pod: Pod) -> tuple[object, ...]:
    """What of a pod its Services' endpoints depend on."""
    status, spec = pod.status, pod.spec
    conditions = (status and status.conditions) or ()
    return (
        labels_of(pod),
        is_being_deleted(pod),
        spec and (spec.nodeName, spec.hostname, spec.subdomain),
        status and (status.phase, status.podIP, status.podIPs),
        [(each.status, each.lastTransitionTime) for each in conditions if each.type == "Ready"],
    )
