"""Keeps what tells of the kinds that are served: definitions of built-in ones, and APIServices.

They are objects like others, so that clients can watch them; nobody else may change them.
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

What = tuple[str, str]
"""One of the two, and the name of the object."""


def controller(context: ControllerContext) -> Controller[What]:
    """The controller of the catalog."""
    loop = Catalog(context)
    sources = (loop.definitions, loop.services, context.kinds)
    return Controller("catalog", loop.reconcile, queue=loop.queue, sources=sources, workers=1)


class Catalog:
    """What there has to be, and what there is."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[What]()
        self._client = context.client
        self._clock = context.clock
        self._kinds = context.kinds
        self._told = {kind.resource: kind for kind in KINDS if builtin.has_definition(kind)}
        self._own = frozenset(KINDS.group_versions())
        self.definitions = context.informers.of(CustomResourceDefinition)
        self.services = context.informers.of(APIService)
        self.definitions.handle(self._definition_changed)
        self.services.handle(self._service_changed)
        for name in self._told:
            self.queue.add((DEFINITION, name))
        for group_version in self._own:
            self.queue.add((SERVICE, api_service.name_of(group_version)))

    async def reconcile(self, what: What) -> None:
        """Make, mend or remove one of them."""
        sort, name = what
        if sort == DEFINITION:
            await self._define(name)
        else:
            await self._serve(name)

    async def _define(self, name: str) -> None:
        kind = self._told.get(name)
        if kind is None:
            return
        wanted = builtin.definition_of(kind)
        found = self.definitions.get(Key("", name))
        if found is None:
            try:
                await self._client.create(CustomResourceDefinition, wanted)
            except AlreadyExists:
                return  # the cache will tell
        elif not _same(found, wanted):
            version = found.metadata.resource_version
            wanted["metadata"]["resourceVersion"] = version
            await self._client.replace(CustomResourceDefinition, wanted)

    async def _serve(self, name: str) -> None:
        served = {api_service.name_of(each): each for each in self._kinds.table.group_versions()}
        found, group_version = self.services.get(Key("", name)), served.get(name)
        if group_version is None:
            if found is not None:
                await self._client.delete(APIService, Key("", name))
            return
        if found is None:
            wanted = api_service.local(group_version, custom=group_version not in self._own)
            try:
                found = await self._client.create(APIService, wanted)
            except AlreadyExists:
                return  # the cache will tell
        if found.status is None or not found.status.conditions:
            status = api_service.available(rfc3339(self._clock()))
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


def _same(found: CustomResourceDefinition, wanted: Document) -> bool:
    """Whether a definition says what it has to."""
    read = msgspec.convert(wanted, CustomResourceDefinition)
    marked = is_built_in(msgspec.to_builtins(found))
    return marked and msgspec.to_builtins(found.spec) == msgspec.to_builtins(read.spec)
