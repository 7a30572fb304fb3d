"""Publishes the served kinds: CustomResourceDefinitions of built-in ones, and APIServices.

They are ordinary objects, so that clients can watch them; only this controller may change them.
"""

from collections.abc import Iterator

import msgspec
from lightkube.models.apiregistration_v1 import APIService

from corral.api.errors import AlreadyExists, NotFound
from corral.api.kind import GroupVersion
from corral.api.kinds import KINDS, api_service
from corral.api.kinds.crd import builtin
from corral.api.kinds.crd.definition import CustomResourceDefinition
from corral.api.kinds.crd.well_known import is_built_in
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

DEFINITION, SERVICE = "definition", "service"

CatalogKey = tuple[str, str]
"""Kind of object (one of these two) and its name."""


def controller(context: ControllerContext) -> Controller[CatalogKey]:
    loop = Catalog(context)
    sources = (loop.definitions, loop.services, context.kinds)
    return Controller("catalog", loop.reconcile, queue=loop.queue, sources=sources, workers=1)


class Catalog:
    """Caches and desired objects of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[CatalogKey]()
        self._client = context.client
        self._clock = context.clock
        self._kinds = context.kinds
        self._defined = {kind.resource: kind for kind in KINDS if builtin.has_definition(kind)}
        self._own = frozenset(KINDS.group_versions())
        self.definitions = context.informers.of(CustomResourceDefinition)
        self.services = context.informers.of(APIService)
        self.definitions.handle(self._definition_changed)
        self.services.handle(self._service_changed)
        for name in self._defined:
            self.queue.add((DEFINITION, name))
        for group_version in self._own:
            self.queue.add((SERVICE, api_service.name_of(group_version)))

    async def reconcile(self, key: CatalogKey) -> None:
        """Create, repair or delete one object."""
        kind, name = key
        if kind == DEFINITION:
            await self._sync_definition(name)
        else:
            await self._sync_service(name)

    async def _sync_definition(self, name: str) -> None:
        kind = self._defined.get(name)
        if kind is None:
            return
        desired = builtin.definition_of(kind)
        observed = self.definitions.get(Key("", name))
        if observed is None:
            try:
                await self._client.create(CustomResourceDefinition, desired)
            except AlreadyExists:
                return  # the cache will have it
        elif not _same(observed, desired):
            version = observed.metadata.resource_version
            desired["metadata"]["resourceVersion"] = version
            await self._client.replace(CustomResourceDefinition, desired)

    async def _sync_service(self, name: str) -> None:
        served = {api_service.name_of(each): each for each in self._kinds.table.group_versions()}
        observed, group_version = self.services.get(Key("", name)), served.get(name)
        if group_version is None:
            if observed is not None:
                await self._client.delete(APIService, Key("", name))
            return
        if observed is None:
            desired = api_service.local_service(
                group_version, custom=group_version not in self._own
            )
            try:
                observed = await self._client.create(APIService, desired)
            except AlreadyExists:
                return  # the cache will have it
        if observed.status is None or not observed.status.conditions:
            status = api_service.available_status(rfc3339(self._clock()))
            try:
                await self._client.patch(
                    APIService, Key("", name), {"status": status}, subresource="status"
                )
            except NotFound:
                return

    def _definition_changed(
        self, old: CustomResourceDefinition | None, new: CustomResourceDefinition | None
    ) -> None:
        changed = new or old
        assert changed is not None
        self.queue.add((DEFINITION, key_of(changed).name))
        for definition in (old, new):
            for group_version in _group_versions(definition):
                self.queue.add((SERVICE, api_service.name_of(group_version)))

    def _service_changed(self, old: APIService | None, new: APIService | None) -> None:
        changed = new or old
        assert changed is not None
        self.queue.add((SERVICE, key_of(changed).name))


def _group_versions(definition: CustomResourceDefinition | None) -> Iterator[GroupVersion]:
    if definition is not None:
        for version in definition.spec.versions:
            yield GroupVersion(definition.spec.group, version.name)


def _same(observed: CustomResourceDefinition, desired: Document) -> bool:
    """Report whether a definition has the desired spec and mark."""
    read = msgspec.convert(desired, CustomResourceDefinition)
    is_marked = is_built_in(msgspec.to_builtins(observed))
    return is_marked and msgspec.to_builtins(observed.spec) == msgspec.to_builtins(read.spec)
