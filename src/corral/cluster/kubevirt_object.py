"""Maintains the KubeVirt object, by which clients find KubeVirt and its version."""

import platform

import msgspec
from lightkube.models.core_v1 import Namespace

from corral.api.errors import AlreadyExists, Forbidden, NotFound
from corral.api.kinds.kubevirt.installation import (
    KEY,
    SPEC,
    KubeVirt,
    KubeVirtSpec,
    KubeVirtStatus,
    deployed_status,
)
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

NAMESPACE = Key("", KEY.namespace)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Installation(context)
    return Controller(
        "installation",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.found, loop.namespaces),
        workers=1,
    )


class Installation:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.found = context.informers.of(KubeVirt)
        self._client = context.client
        self._clock = context.clock
        self.found.handle(lambda _old, _new: self.queue.add(KEY))
        self.namespaces = context.informers.of(Namespace)
        self.namespaces.handle(self._namespace_changed)
        self.queue.add(KEY)

    def _namespace_changed(self, _old: Namespace | None, new: Namespace | None) -> None:
        if new is not None and key_of(new) == NAMESPACE:
            self.queue.add(KEY)

    async def reconcile(self, key: Key) -> None:
        """Create the object, or sync its status."""
        found = self.found.get(key)
        if found is None:
            if self.namespaces.get(NAMESPACE) is not None:
                await self._create(key)
            return
        if found.spec == KubeVirtSpec():  # it is of a corral that let it say nothing
            await self._client.patch(KubeVirt, key, {"spec": SPEC})
            return
        machine = platform.machine()
        status = deployed_status(
            found, _ARCHITECTURES.get(machine, machine), rfc3339(self._clock())
        )
        counted = found.status.outdated_virtual_machine_instance_workloads  # by its own controller
        desired = msgspec.convert(status, KubeVirtStatus)
        desired.outdated_virtual_machine_instance_workloads = counted
        if desired != found.status:
            try:
                await self._client.patch(KubeVirt, key, {"status": status}, subresource="status")
            except NotFound:
                return  # the cache will follow

    async def _create(self, key: Key) -> None:
        try:
            metadata = {"namespace": key.namespace, "name": key.name}
            await self._client.create(KubeVirt, {"metadata": metadata, "spec": SPEC})
        except (AlreadyExists, NotFound, Forbidden):
            return  # it exists by now, or its namespace is being deleted
