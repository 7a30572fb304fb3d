"""Garbage collector of Kubernetes, for every kind.

- An object none of whose owners exists any more is deleted (background deletion). - An owner that
is deleted in the foreground waits for the dependents that block it. - Owners in a circle, each of
which would wait for the others, do not wait for each other. - An owner that is deleted with
``orphan`` has the references of its dependents removed first.

The server adds finalizers for the latter two; this controller acts on them and removes them.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

import msgspec

from corral.api.errors import NotFound
from corral.api.kind import Kind
from corral.api.object import Document, Key
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Source
from corral.reconcile.deletion import remove
from corral.reconcile.objects import (
    Owner,
    Partial,
    finalizers_of,
    have_same_owners,
    is_being_deleted,
    key_of,
    owners_of,
    uid_of,
    version_of,
)
from corral.reconcile.workqueue import WorkQueue

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
WORKERS = 20
UNOWNED = frozenset({"events", "leases"})
"""Kinds with many or fast-changing objects, which never have owners."""
_MAX_ABSENT = 1000


class State(Enum):
    """State of an owner."""

    SOLID = "it exists"
    WAITING = "it is deleted in the foreground and waits for its dependents"
    ABSENT = "it does not exist"


class Item(NamedTuple):
    """An object and its kind."""

    kind: Kind
    view: msgspec.Struct

    @property
    def key(self) -> Key:
        return key_of(self.view)

    @property
    def owners(self) -> Sequence[Owner]:
        return owners_of(self.view)

    @property
    def finalizers(self) -> Sequence[str]:
        return finalizers_of(self.view)

    @property
    def is_waiting(self) -> bool:
        return is_being_deleted(self.view) and FOREGROUND in self.finalizers


def controller(context: ControllerContext) -> Controller[str]:
    loop = Garbage(context)
    return Controller(
        "garbage", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=WORKERS
    )


class Garbage:
    """Objects and their dependents, by uid."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[str]()
        self._client = context.client
        self._kinds = context.kinds
        self._informers = context.informers
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}
        self._absent: OrderedDict[str, None] = OrderedDict()
        self.sources: list[Source] = []
        context.kinds.subscribe(self._kind_added)
        self.sources.append(context.kinds)

    async def reconcile(self, uid: str) -> None:
        """Delete an object, or handle its finalizers, depending on its owners and dependents."""
        item = self._items.get(uid)
        if item is None:
            return
        if not is_being_deleted(item.view):
            await self._check_owners(item)
        elif ORPHAN in item.finalizers:
            await self._orphan(item)
        elif FOREGROUND in item.finalizers:
            await self._wait_for_dependents(item)

    async def _check_owners(self, item: Item) -> None:
        states = {owner.uid: await self._state(item, owner) for owner in item.owners}
        gone = {uid for uid, state in states.items() if state is not State.SOLID}
        if not gone:
            return
        if len(gone) < len(states):
            await self._remove_owners(item, gone)
            return
        waiting = any(state is State.WAITING for state in states.values())
        await self._delete(item, foreground=waiting and bool(self._blocking(item)))

    async def _state(self, item: Item, owner: Owner) -> State:
        cached = self._items.get(owner.uid)
        if cached is not None and cached.key.namespace in ("", item.key.namespace):
            return State.WAITING if cached.is_waiting else State.SOLID
        if owner.uid in self._absent:
            return State.ABSENT
        kind = self._kinds.table.by_kind(owner.api_version.rpartition("/")[0], owner.kind)
        if kind is None:
            return State.SOLID  # an owner of unknown kind counts as existing
        namespace = item.key.namespace if kind.namespaced else ""
        try:
            found = Item(kind, await self._client.get(Partial, owner.name, namespace, kind=kind))
        except NotFound:
            found = None
        if found is None or uid_of(found.view) != owner.uid:
            self._absent[owner.uid] = None  # a uid never comes back
            if len(self._absent) > _MAX_ABSENT:
                self._absent.popitem(last=False)
            return State.ABSENT
        return State.WAITING if found.is_waiting else State.SOLID

    async def _delete(self, item: Item, *, foreground: bool) -> None:
        if ORPHAN in item.finalizers:
            policy = "Orphan"
        elif foreground or FOREGROUND in item.finalizers:
            policy = "Foreground"
        else:
            policy = "Background"
        # By version, as in Kubernetes: somebody may have adopted it since.
        await remove(
            self._client,
            Partial,
            item.key,
            uid_of(item.view),
            version=version_of(item.view),
            propagation=policy,
            kind=item.kind,
        )

    async def _orphan(self, item: Item) -> None:
        dependents = self._dependents_of(item)
        refused = await for_each(dependents, partial(self._remove_owners, gone={uid_of(item.view)}))
        if refused:
            raise refused[0]
        await self._release(item, ORPHAN)

    async def _wait_for_dependents(self, item: Item) -> None:
        if not self._blocking(item):
            await self._release(item, FOREGROUND)
            return
        waiting = self._waiting_dependents(item)
        circle = {owner.uid for owner in item.owners if owner.blocks and owner.uid in waiting}
        if circle:
            await self._unblock(item, circle)
            return
        for dependent in self._dependents_of(item):
            if not is_being_deleted(dependent.view):
                self.queue.add(uid_of(dependent.view))

    def _waiting_dependents(self, item: Item) -> set[str]:
        """Return the uids of foreground-deleted dependents that an item waits for, and its own."""
        waiting, unvisited = {uid_of(item.view)}, [item]
        while unvisited:
            for dependent in self._blocking(unvisited.pop()):
                if dependent.is_waiting and uid_of(dependent.view) not in waiting:
                    waiting.add(uid_of(dependent.view))
                    unvisited.append(dependent)
        return waiting

    async def _unblock(self, item: Item, circle: Collection[str]) -> None:
        """Remove the blocking flag of references to owners that wait for this item in a circle.

        Kubernetes does so when it processes the dependent, and then unblocks all of its owners
        (attemptToDeleteItem, unblockOwnerReferences); it misses circles that are deleted at once.
        """
        references = [
            owner._replace(blocks=owner.blocks and owner.uid not in circle).document()
            for owner in item.owners
        ]
        await self._patch(item, {"ownerReferences": references})

    async def _remove_owners(self, item: Item, gone: Collection[str]) -> None:
        """Remove an object's references to owners that are gone or waiting."""
        kept = [owner.document() for owner in item.owners if owner.uid not in gone]
        await self._patch(item, {"ownerReferences": kept or None})

    async def _release(self, item: Item, finalizer: str) -> None:
        kept = [each for each in item.finalizers if each != finalizer]
        await self._patch(item, {"finalizers": kept or None})

    async def _patch(self, item: Item, metadata: Document) -> None:
        preconditions = {"uid": uid_of(item.view), "resourceVersion": version_of(item.view)}
        try:
            await self._client.patch(
                Partial, item.key, {"metadata": {**metadata, **preconditions}}, kind=item.kind
            )
        except NotFound:
            return

    def _dependents_of(self, item: Item) -> list[Item]:
        uids = self._dependents.get(uid_of(item.view), ())
        return [found for uid in uids if (found := self._items.get(uid)) is not None]

    def _blocking(self, item: Item) -> list[Item]:
        uid = uid_of(item.view)
        return [
            dependent
            for dependent in self._dependents_of(item)
            if any(owner.uid == uid and owner.blocks for owner in dependent.owners)
        ]

    def _kind_added(self, kind: Kind) -> None:
        if kind.plural not in UNOWNED or not kind.native:
            informer = self._informers.metadata(kind)
            informer.handle(partial(self._changed, kind))
            self.sources.append(informer)

    def _changed(self, kind: Kind, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if new is None:
            assert old is not None
            self._items.pop(uid_of(old), None)
            self._update_dependents(uid_of(old), owners_of(old), ())
            self._deleted(Item(kind, old))
            return
        item, uid = Item(kind, new), uid_of(new)
        self._items[uid] = item
        changed = old is None or not have_same_owners(old, new)
        if changed:
            before = owners_of(old) if old is not None else ()
            self._update_dependents(uid, before, item.owners)
            self._enqueue_unblocked(before, item.owners)
        if is_being_deleted(new):
            if ORPHAN in item.finalizers or FOREGROUND in item.finalizers:
                self.queue.add(uid)
        elif old is None:
            if any(owner.uid not in self._items for owner in item.owners):
                self.queue.add(uid)
        elif changed:
            self.queue.add(uid)

    def _update_dependents(self, uid: str, before: Sequence[Owner], after: Sequence[Owner]) -> None:
        for owner in before:
            members = self._dependents.get(owner.uid, set())
            members.discard(uid)
            if not members:
                self._dependents.pop(owner.uid, None)
        for owner in after:
            self._dependents.setdefault(owner.uid, set()).add(uid)

    def _deleted(self, item: Item) -> None:
        for uid in self._dependents.get(uid_of(item.view), ()):
            self.queue.add(uid)
        self._enqueue_unblocked(item.owners, ())

    def _enqueue_unblocked(self, before: Sequence[Owner], after: Sequence[Owner]) -> None:
        """Enqueue owners that a dependent no longer blocks."""
        blocked = {owner.uid for owner in after if owner.blocks}
        for owner in before:
            cached = self._items.get(owner.uid)
            if cached is not None and cached.is_waiting and owner.uid not in blocked:
                self.queue.add(owner.uid)
