"""Establishes definitions of kinds, and empties them before they go.

What apiextensions-apiserver's controllers do: names are accepted where no other definition of the
group has them, and with that the kind is served; a definition that is deleted goes when the last
object of its kind has gone.
"""

from functools import partial

import msgspec

from corral.api.conditions import set_condition
from corral.api.kind import Kind
from corral.api.kinds import KINDS
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

PATIENCE_SECONDS = 15.0
"""What still holds a definition is looked at again after this time in any case."""
_RESERVED = naming.reserved_groups(KINDS)
BATCH_SECONDS = 0.1
"""How long news of objects that went waits for more of the kind."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of definitions."""
    loop = Definitions(context)
    # One after the other: who comes first has the name.
    return Controller(
        "definitions",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.definitions, context.kinds),
        workers=1,
    )


class Definitions:
    """The definitions, and watches over the objects of those that are going."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self._informers = context.informers
        self.definitions = context.informers.of(CustomResourceDefinition)
        self.definitions.index("group", lambda definition: (definition.spec.group,))
        self.definitions.handle(self._changed)
        context.kinds.subscribe(self._kind_came)

    async def reconcile(self, key: Key) -> Result | None:
        """Name one definition, or end it."""
        definition = self.definitions.get(key)
        if definition is None:
            return None
        if is_being_deleted(definition):
            return await self._end(definition)
        await self._name(definition)
        return None

    async def _name(self, definition: CustomResourceDefinition) -> None:
        document = _document(definition)
        group = definition.spec.group
        others = [
            _document(other)
            for other in self.definitions.indexed("group", group)
            if key_of(other) != key_of(definition)
        ]
        ours = () if is_built_in(document) else [kind for kind in KINDS if kind.group == group]
        used = naming.UsedNames.of(others, ours)
        if group in _RESERVED:
            used = naming.UsedNames(reserved=True)
        status = naming.updated_status(document, used, rfc3339(self._clock()))
        if status != document.get("status"):
            await self._tell(document, status)

    async def _end(self, definition: CustomResourceDefinition) -> Result | None:
        document = _document(definition)
        if CLEANUP not in definition.metadata.finalizers:
            return None
        kind = kind_of(document)
        if kind is None:
            text = "resource was never established"
            await self._let_go(document, "NeverEstablished", text)
            return None
        document = await self._terminating(
            document, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        )
        if await remove_all(self._client, kind):
            return Result(requeue_after=PATIENCE_SECONDS)
        await self._let_go(document, "InstanceDeletionCompleted", "removed all instances")
        return None

    async def _let_go(self, document: Document, reason: str, message: str) -> None:
        document = await self._terminating(document, "False", reason, message)
        metadata = document["metadata"]
        kept = [each for each in metadata["finalizers"] if each != CLEANUP]
        guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        change = {"metadata": {"finalizers": kept or None, **guard}}
        await self._client.patch(CustomResourceDefinition, Key("", metadata["name"]), change)

    async def _terminating(
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
        return await self._tell(document, {**status, "conditions": conditions})

    async def _tell(self, document: Document, status: Document) -> Document:
        if status == document.get("status"):
            return document
        told = await self._client.replace(
            CustomResourceDefinition, {**document, "status": status}, subresource="status"
        )
        return _document(told)

    def _changed(
        self, old: CustomResourceDefinition | None, new: CustomResourceDefinition | None
    ) -> None:
        if new is not None:
            self.queue.add(key_of(new))
        changed = new or old
        assert changed is not None
        if new is None or (old is not None and old.status != new.status):
            # A name may be free now that another waits for.
            for other in self.definitions.indexed("group", changed.spec.group):
                if key_of(other) != key_of(changed):
                    self.queue.add(key_of(other))

    def _kind_came(self, kind: Kind) -> None:
        if kind.schemas is not None:
            gone = partial(self._object_changed, Key("", kind.resource))
            self._informers.metadata(kind).handle(gone)

    def _object_changed(
        self, definition: Key, _old: msgspec.Struct | None, new: msgspec.Struct | None
    ) -> None:
        holder = self.definitions.get(definition)
        if new is None and holder is not None and is_being_deleted(holder):
            self.queue.add_after(definition, BATCH_SECONDS)


def _document(definition: CustomResourceDefinition) -> Document:
    document: Document = msgspec.to_builtins(definition)
    return document
