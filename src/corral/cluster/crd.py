"""Controllers of CustomResourceDefinitions: naming, establishing, finalizing.

As in apiextensions-apiserver: names are accepted if no other definition of the group has them, and
then the kind is served; a deleted definition is finalized after the last object of its kind.
"""

from functools import partial

import msgspec

from corral.api.conditions import set_condition
from corral.api.kind import Kind
from corral.api.kinds.crd import naming
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.crd.definition import CustomResourceDefinition
from corral.api.kinds.crd.well_known import CLEANUP, TERMINATING, is_built_in
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove_all
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

RETRY_SECONDS = 15.0
"""Interval after which a definition with remaining objects is synced in any case."""
BATCH_SECONDS = 0.1
"""Delay of events about deleted objects, so that they are handled together."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Definitions(context)
    # One worker: of two definitions with the same name the first gets it.
    return Controller(
        "definitions",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.definitions, context.kinds),
        workers=1,
    )


class Definitions:
    """Caches of definitions, and of the metadata of their objects."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self._informers = context.informers
        self._built_in = context.kinds.built_in
        self._reserved = naming.reserved_groups(self._built_in)
        self.definitions = context.informers.of(CustomResourceDefinition)
        self.definitions.index(_group)
        self.definitions.handle(self._changed)
        context.kinds.subscribe(self._kind_added)

    async def reconcile(self, key: Key) -> Result | None:
        """Accept the names of one definition, or finalize it."""
        definition = self.definitions.get(key)
        if definition is None:
            return None
        if is_being_deleted(definition):
            return await self._finalize(definition)
        await self._accept_names(definition)
        return None

    async def _accept_names(self, definition: CustomResourceDefinition) -> None:
        document = _document(definition)
        group = definition.spec.group
        others = [
            {"status": msgspec.to_builtins(other.status)}  # schemas may be large
            for other in self.definitions.indexed(_group, group)
            if key_of(other) != key_of(definition)
        ]
        built_in = [kind for kind in self._built_in if kind.group == group]
        ours = () if is_built_in(document) else built_in
        used = naming.UsedNames.of(others, ours)
        if group in self._reserved:
            used = naming.UsedNames(reserved=True)
        status = naming.updated_status(document, used, rfc3339(self._clock()))
        if status != document.get("status"):
            await self._update_status(document, status)

    async def _finalize(self, definition: CustomResourceDefinition) -> Result | None:
        document = _document(definition)
        if CLEANUP not in definition.metadata.finalizers:
            return None
        kind = kind_of(document)
        if kind is None:
            text = "resource was never established"
            await self._remove_finalizer(document, "NeverEstablished", text)
            return None
        document = await self._set_terminating(
            document, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        )
        if await remove_all(self._client, kind):
            return Result(requeue_after=RETRY_SECONDS)
        await self._remove_finalizer(document, "InstanceDeletionCompleted", "removed all instances")
        return None

    async def _remove_finalizer(self, document: Document, reason: str, message: str) -> None:
        document = await self._set_terminating(document, "False", reason, message)
        metadata = document["metadata"]
        kept = [each for each in metadata["finalizers"] if each != CLEANUP]
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        change = {"metadata": {"finalizers": kept or None, **preconditions}}
        await self._client.patch(CustomResourceDefinition, Key("", metadata["name"]), change)

    async def _set_terminating(
        self, document: Document, value: str, reason: str, message: str
    ) -> Document:
        status = document.get("status") or {}
        conditions = set_condition(
            status.get("conditions"),
            TERMINATING,
            value,
            reason=reason,
            message=message,
            now=rfc3339(self._clock()),
        )
        return await self._update_status(document, {**status, "conditions": conditions})

    async def _update_status(self, document: Document, status: Document) -> Document:
        if status == document.get("status"):
            return document
        updated = await self._client.replace(
            CustomResourceDefinition, {**document, "status": status}, subresource="status"
        )
        return _document(updated)

    def _changed(
        self, old: CustomResourceDefinition | None, new: CustomResourceDefinition | None
    ) -> None:
        if new is not None:
            self.queue.add(key_of(new))
        changed = new or old
        assert changed is not None
        if new is None or (old is not None and old.status != new.status):
            # Another definition may wait for a name that is free now.
            for other in self.definitions.indexed(_group, changed.spec.group):
                if key_of(other) != key_of(changed):
                    self.queue.add(key_of(other))

    def _kind_added(self, kind: Kind) -> None:
        if kind.schemas is not None:
            handler = partial(self._object_changed, Key("", kind.resource))
            self._informers.metadata(kind).handle(handler)

    def _object_changed(
        self, definition: Key, _old: msgspec.Struct | None, new: msgspec.Struct | None
    ) -> None:
        cached = self.definitions.get(definition)
        if new is None and cached is not None and is_being_deleted(cached):
            self.queue.add_after(definition, BATCH_SECONDS)


def _document(definition: CustomResourceDefinition) -> Document:
    document: Document = msgspec.to_builtins(definition)
    return document


def _group(definition: CustomResourceDefinition) -> tuple[str]:
    return (definition.spec.group,)
