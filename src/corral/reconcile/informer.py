"""A cache that follows the API: list once, then watch, with indexes and handlers.

One informer for all loops that read the same objects, so that each object is decoded and kept
once.  What the cache holds is shared: nobody may change it.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, ValuesView
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from corral.aio import Background
from corral.api.errors import ApiError, Gone
from corral.api.kind import Kind
from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.client.decoding import Bookmark, Unreadable, WatchEvent
from corral.reconcile.interning import share
from corral.reconcile.objects import Partial, key_of, uid_of, version_of

T = TypeVar("T", bound=msgspec.Struct)

Handler = Callable[[T | None, T | None], None]
"""Gets an object before and after a change: None before it is there, None after it is gone."""

log = structlog.get_logger()

WATCH_SECONDS = (300, 600)
"""A watch is begun anew after a time between these, so that no server is stuck with us."""
_LATE_SECONDS = 30.0
"""How much longer than agreed a watch may last before it counts as dead."""
LIST_SECONDS = 60.0
FIRST_DELAY = 0.8
LONGEST_DELAY = 30.0
"""Seconds before listing or watching again after a failure: doubled each time, with jitter."""
_LIVELY_SECONDS = 1.0
"""A watch that lasted this long was a good one."""


class Informer(Generic[T]):
    """The objects of one kind, as they were a moment ago."""

    def __init__(
        self,
        client: Client,
        view: type[T],
        kind: Kind,
        *,
        fields: str = "",
        shared: Callable[[T], T | None] = lambda _: None,
    ) -> None:
        """``shared`` answers the same object from another cache, where one has it already."""
        self._client = client
        self._shared = shared
        self._view = view
        self._kind = kind
        self._fields = fields
        self._objects: dict[Key, T] = {}
        self._indexers: dict[str, Callable[[T], Iterable[str]]] = {}
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {}
        self._handlers: list[Handler[T]] = []
        self._deletion_handlers: list[Callable[[T], None]] = []
        self._synced = asyncio.Event()
        self._last: T | None = None
        self._version = ""

    def __repr__(self) -> str:
        return f"Informer({self._kind.resource})"

    @property
    def has_synced(self) -> bool:
        """Whether the cache has held the present state once."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the cache has held the present state once."""
        await self._synced.wait()

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def items(self) -> ValuesView[T]:
        """Every object, in no order."""
        return self._objects.values()

    def indexed(self, index: str, value: str) -> list[T]:
        """The objects for which the index's function answered this value among others."""
        return list(self._indexes[index].get(value, {}).values())

    def index(self, name: str, values: Callable[[T], Iterable[str]]) -> None:
        """Keep an index; asking again for one of the same name changes nothing."""
        if name in self._indexers:
            return
        self._indexers[name] = values
        table = self._indexes[name] = {}
        for key, item in self._objects.items():
            for value in values(item):
                table.setdefault(value, {})[key] = item

    def handle(self, handler: Handler[T]) -> None:
        """Call ``handler`` for each change; what is there already counts as new.

        Handlers are called in between two changes of the cache: they note what to look at, and
        return.
        """
        self._handlers.append(handler)
        for item in self._objects.values():
            handler(None, item)

    def handle_deleted(self, handler: Callable[[T], None]) -> None:
        """Call ``handler`` with each object that the server says is deleted, before it goes.

        What goes without that may be there still: what is damaged on the server's disk is in no
        list, and in no cache.  Where fields are selected that may change, an object is said to be
        deleted that has ceased to match.
        """
        self._deletion_handlers.append(handler)

    async def run(self) -> None:
        """Follow the API until cancelled, whatever becomes of the server in the meantime."""
        failures = 0
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except Gone:
                log.info("watch too old, listing again", kind=self._kind.resource)
                self._version = ""
            except (ApiError, TimeoutError) as error:
                log.warning(
                    "cannot follow",
                    kind=self._kind.resource,
                    error=str(error) or "no answer in time",
                )
            lasted = asyncio.get_running_loop().time() - begun
            failures = 0 if lasted >= _LIVELY_SECONDS else failures + 1
            if failures:
                await asyncio.sleep(_delay(failures))

    async def _list(self) -> None:
        async with asyncio.timeout(LIST_SECONDS):
            listed = await self._client.list(self._view, fields=self._fields, kind=self._kind)
        gone = set(self._objects) - {key_of(item) for item in listed.items}
        for key in gone:
            self._remove(key)
        for item in listed.items:
            self._put(item, newer_only=False)
        self._version = listed.resource_version
        self._synced.set()

    async def _follow(self) -> None:
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards no secret
        watch = self._client.watch(
            self._view,
            resource_version=self._version,
            fields=self._fields,
            timeout_seconds=seconds,
            kind=self._kind,
        )
        async with asyncio.timeout(seconds + _LATE_SECONDS), aclosing(watch) as events:
            async for event in events:
                self._apply(event)

    def learn(self, item: T) -> None:
        """Take note of what a server answered, if it is news of an object that is in the cache.

        So a loop reads its own writes, and does not act on what it has just changed.
        """
        old = self._objects.get(key_of(item))
        if old is not None and uid_of(old) == uid_of(item):
            self._put(item)

    def clear(self) -> None:
        """Forget every object: handlers are told that it is gone."""
        for key in tuple(self._objects):
            self._remove(key)

    def _apply(self, event: WatchEvent[T] | Unreadable | Bookmark) -> None:
        if not isinstance(event, WatchEvent):
            if isinstance(event, Unreadable):
                self._remove(event.key, event.uid if event.type == "DELETED" else "")
            self._version = event.resource_version
            return
        if event.type == "DELETED":
            for handle in self._deletion_handlers:
                handle(event.object)
            self._remove(key_of(event.object), uid_of(event.object))
        else:
            self._put(event.object)
        self._version = version_of(event.object)

    def _put(self, item: T, *, newer_only: bool = True) -> None:
        key = key_of(item)
        old = self._objects.get(key)
        if old is not None and uid_of(old) != uid_of(item):
            self._remove(key)
            old = None
        if old is not None:
            known, new = version_of(old), version_of(item)
            if known == new or (newer_only and is_older(new, known)):
                return
        if (same := self._shared(item)) is not None:
            item = same
        elif self._last is not None:
            share(item, self._last, old)  # what is like it now, and its own older version
            key = key_of(item)
        self._last = self._objects[key] = item
        self._reindex(key, old, item)
        for handler in self._handlers:
            handler(old, item)

    def _remove(self, key: Key, uid: str = "") -> None:
        old = self._objects.get(key)
        if old is None or (uid and uid_of(old) != uid):
            return
        del self._objects[key]
        self._reindex(key, old, None)
        for handler in self._handlers:
            handler(old, None)

    def _reindex(self, key: Key, old: T | None, new: T | None) -> None:
        for name, values in self._indexers.items():
            table = self._indexes[name]
            before = tuple(values(old)) if old is not None else ()
            after = tuple(values(new)) if new is not None else ()
            if before != after:  # which is seldom
                for value in before:
                    members = table[value]
                    members.pop(key, None)
                    if not members:
                        del table[value]
            for value in after:
                table.setdefault(value, {})[key] = new  # type: ignore[assignment]


class Informers:
    """The informers of a process: one for each view, kind and field selector that is asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[type[msgspec.Struct], str, str], Informer[Any]] = {}
        self._alike: defaultdict[type | str, tuple[Informer[Any], ...]] = defaultdict(tuple)
        """Those of one view, and of ``Partial``, which reads any kind, those of one resource: each
        object that is read or written is shown to those alone."""
        self._running: Background | None = None
        self._tasks: dict[Informer[Any], asyncio.Task[None]] = {}

    def of(self, view: type[T], *, fields: str = "", kind: Kind | None = None) -> Informer[T]:
        """The shared informer of a view; it runs as long as ``run`` does."""
        kind = kind or kind_of(view)
        address = (view, kind.resource, fields)
        informer = self._known.get(address)
        if informer is None:
            informer = self._known[address] = Informer(
                self._client, view, kind, fields=fields, shared=partial(self._shared, kind.resource)
            )
            self._alike[kind.resource if view is Partial else view] += (informer,)
            if self._running is not None:
                self._start(self._running, informer)
        return informer

    def _shared(self, resource: str, item: T) -> T | None:
        """The one copy of an object that all caches of its view and kind hold; None without one."""
        view = type(item)
        alike = self._alike[resource if view is Partial else view]
        if len(alike) == 1:
            return None
        key, version = key_of(item), version_of(item)
        for informer in alike:
            other = informer.get(key)
            if other is not None and version_of(other) == version:
                return cast("T", other)
        return None

    def learn(self, item: msgspec.Struct) -> None:
        """Tell the informers of an object's view what a server answered.

        Who hears of it from them may ask for further ones.
        """
        for informer in self._alike[type(item)]:  # none for Partial: of whatever kind
            informer.learn(item)

    def metadata(self, kind: Kind) -> Informer[Any]:
        """An informer of any view of a kind, for loops that look at the metadata only.

        One that is known already serves, so that nothing is decoded and kept twice; loops that
        need a typed view are therefore made first.
        """
        for (_, resource, fields), informer in self._known.items():
            if (resource, fields) == (kind.resource, ""):
                return informer
        return self.of(Partial, kind=kind)

    def of_kind(self, kind: Kind) -> list[Informer[Any]]:
        """The informers of a kind, whatever their view and selector."""
        known = self._known.items()
        return [informer for (_, resource, _), informer in known if resource == kind.resource]

    def end(self, kind: Kind) -> None:
        """End the informers of a kind that is served no more; what they held is gone."""
        for informer in self.of_kind(kind):
            self._known = {
                address: other for address, other in self._known.items() if other is not informer
            }
            self._alike = defaultdict(
                tuple,
                {
                    address: tuple(each for each in those if each is not informer)
                    for address, those in self._alike.items()
                },
            )
            if (task := self._tasks.pop(informer, None)) is not None:
                task.cancel()
            informer.clear()

    async def run(self) -> None:
        """Run every informer, also those that are asked for later, until cancelled."""
        async with Background() as tasks:
            self._running = tasks
            try:
                for informer in list(self._known.values()):
                    self._start(tasks, informer)
                await asyncio.Event().wait()
            finally:
                self._running = None

    def _start(self, tasks: Background, informer: Informer[Any]) -> None:
        self._tasks[informer] = tasks.start(informer.run(), name=f"informer-{informer}")


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is from before another; of words that are no numbers, none is."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _delay(failures: int) -> float:
    longest = min(FIRST_DELAY * 2.0 ** min(failures - 1, 10), LONGEST_DELAY)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards no secret
