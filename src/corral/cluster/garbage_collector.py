"""Owners gone, dependents go: Kubernetes' garbage collector, for every kind there is.

- An object none of whose owners exists any more is deleted (background deletion).
- An owner that is deleted in the foreground goes after the dependents that block it.
- Owners in a circle, each of which would wait for the others, do not wait for each other.
- An owner that is deleted as an orphan-maker has its dependents' references to it removed first.

The server marks the two latter with finalizers; this loop does what they stand for, and takes
them off.
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
"""Kinds that are many, or change often, and end by other means."""
_REMEMBERED = 1000


class State(Enum):
    """What is known of an owner."""

    SOLID = "there"
    WAITING = "deleted in the foreground: waits for its dependents"
    ABSENT = "gone"


class Item(NamedTuple):
    """An object, as far as the collector looks at it."""

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
    """The controller that collects garbage."""
    loop = Garbage(context)
    return Controller(
        "garbage", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=WORKERS
    )


class Garbage:
    """Who exists, and who depends on whom, by uid."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[str]()
        self._client = context.client
        self._kinds = context.kinds
        self._informers = context.informers
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}
        self._absent: OrderedDict[str, None] = OrderedDict()
        self.sources: list[Source] = []
        context.kinds.subscribe(self._kind_came)
        self.sources.append(context.kinds)

    async def reconcile(self, uid: str) -> None:
        """Delete, release or wait for one object, as its owners and its finalizers ask."""
        item = self._items.get(uid)
        if item is None:
            return
        if not is_being_deleted(item.view):
            await self._judge(item)
        elif ORPHAN in item.finalizers:
            await self._orphan(item)
        elif FOREGROUND in item.finalizers:
            await self._await_dependents(item)

    async def _judge(self, item: Item) -> None:
        states = {owner.uid: await self._state(item, owner) for owner in item.owners}
        gone = {uid for uid, state in states.items() if state is not State.SOLID}
        if not gone:
            return
        if len(gone) < len(states):
            await self._strip(item, gone)
            return
        awaited = any(state is State.WAITING for state in states.values())
        await self._delete(item, foreground=awaited and bool(self._blocking(item)))

    async def _state(self, item: Item, owner: Owner) -> State:
        known = self._items.get(owner.uid)
        if known is not None and known.key.namespace in ("", item.key.namespace):
            return State.WAITING if known.is_waiting else State.SOLID
        if owner.uid in self._absent:
            return State.ABSENT
        kind = self._kinds.table.by_kind(owner.api_version.rpartition("/")[0], owner.kind)
        if kind is None:
            return State.SOLID  # of an owner that cannot be looked up, nothing is known
        namespace = item.key.namespace if kind.namespaced else ""
        try:
            found = Item(kind, await self._client.get(Partial, owner.name, namespace, kind=kind))
        except NotFound:
            found = None
        if found is None or uid_of(found.view) != owner.uid:
            self._absent[owner.uid] = None  # a uid never comes back
            if len(self._absent) > _REMEMBERED:
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
        uid = uid_of(item.view)
        await remove(self._client, Partial, item.key, uid, propagation=policy, kind=item.kind)

    async def _orphan(self, item: Item) -> None:
        dependents = self._dependents_of(item)
        refused = await for_each(dependents, partial(self._strip, gone={uid_of(item.view)}))
        if refused:
            raise refused[0]
        await self._release(item, ORPHAN)

    async def _await_dependents(self, item: Item) -> None:
        if not self._blocking(item):
            await self._release(item, FOREGROUND)
            return
        awaited = self._awaited(item)
        circle = {owner.uid for owner in item.owners if owner.blocks and owner.uid in awaited}
        if circle:
            await self._unblock(item, circle)
            return
        for dependent in self._dependents_of(item):
            if not is_being_deleted(dependent.view):
                self.queue.add(uid_of(dependent.view))

    def _awaited(self, item: Item) -> set[str]:
        """The uids of those that are deleted in the foreground before an item, itself included."""
        awaited, unseen = {uid_of(item.view)}, [item]
        while unseen:
            for dependent in self._blocking(unseen.pop()):
                if dependent.is_waiting and uid_of(dependent.view) not in awaited:
                    awaited.add(uid_of(dependent.view))
                    unseen.append(dependent)
        return awaited

    async def _unblock(self, item: Item, circle: Collection[str]) -> None:
        """Let owners go before an item that would go before them.

        Kubernetes does so when it judges the item, and then unblocks all of its owners
        (attemptToDeleteItem, unblockOwnerReferences); it misses circles that are deleted at once.
        """
        freed = [
            owner._replace(blocks=owner.blocks and owner.uid not in circle).document()
            for owner in item.owners
        ]
        await self._patch(item, {"ownerReferences": freed})

    async def _strip(self, item: Item, gone: Collection[str]) -> None:
        """Remove an object's references to owners that are gone or going."""
        kept = [owner.document() for owner in item.owners if owner.uid not in gone]
        await self._patch(item, {"ownerReferences": kept or None})

    async def _release(self, item: Item, finalizer: str) -> None:
        kept = [each for each in item.finalizers if each != finalizer]
        await self._patch(item, {"finalizers": kept or None})

    async def _patch(self, item: Item, metadata: Document) -> None:
        guard = {"uid": uid_of(item.view), "resourceVersion": version_of(item.view)}
        try:
            await self._client.patch(
                Partial, item.key, {"metadata": {**metadata, **guard}}, kind=item.kind
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

    def _kind_came(self, kind: Kind) -> None:
        if kind.plural not in UNOWNED or not kind.native:
            informer = self._informers.metadata(kind)
            informer.handle(partial(self._changed, kind))
            self.sources.append(informer)

    def _changed(self, kind: Kind, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        before = owners_of(old) if old is not None else ()
        if new is None:
            assert old is not None
            self._items.pop(uid_of(old), None)
            self._relate(uid_of(old), before, ())
            self._gone(Item(kind, old))
            return
        item, after = Item(kind, new), owners_of(new)
        uid = uid_of(new)
        self._items[uid] = item
        if before != after:
            self._relate(uid, before, after)
            self._wake_unblocked(before, after)
        if is_being_deleted(new):
            if ORPHAN in item.finalizers or FOREGROUND in item.finalizers:
                self.queue.add(uid)
        elif old is None:
            if any(owner.uid not in self._items for owner in after):
                self.queue.add(uid)
        elif before != after:
            self.queue.add(uid)

    def _relate(self, uid: str, before: Sequence[Owner], after: Sequence[Owner]) -> None:
        for owner in before:
            members = self._dependents.get(owner.uid, set())
            members.discard(uid)
            if not members:
                self._dependents.pop(owner.uid, None)
        for owner in after:
            self._dependents.setdefault(owner.uid, set()).add(uid)

    def _gone(self, item: Item) -> None:
        for uid in self._dependents.get(uid_of(item.view), ()):
            self.queue.add(uid)
        self._wake_unblocked(item.owners, ())

    def _wake_unblocked(self, before: Sequence[Owner], after: Sequence[Owner]) -> None:
        """Look again at owners that a dependent no longer blocks."""
        blocked = {owner.uid for owner in after if owner.blocks}
        for owner in before:
            known = self._items.get(owner.uid)
            if known is not None and known.is_waiting and owner.uid not in blocked:
                self.queue.add(owner.uid)
