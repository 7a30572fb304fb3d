"""Informers: caches filled by list and watch, with indexes and event handlers.

Controllers that read the same objects share one informer, so that each object is decoded and cached
once.  Cached objects are shared: callers must not modify them.
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
from corral.reconcile.objects import Partial, is_being_deleted, key_of, uid_of, version_of

T = TypeVar("T", bound=msgspec.Struct)

Handler = Callable[[T | None, T | None], None]
"""Called with an object before and after a change: old is None on add, new is None on delete."""

Index = Callable[[T], Iterable[str]]
"""Returns the values by which an object is looked up."""

log = structlog.get_logger()

WATCH_SECONDS = (300, 600)
"""Bounds of a watch's random timeout, as in client-go's Reflector: watches spread over servers."""
_WATCH_GRACE_SECONDS = 30.0
"""A watch that outlasts its timeout by this much counts as dead."""
LIST_SECONDS = 60.0
FIRST_DELAY = 0.8
LONGEST_DELAY = 30.0
"""Seconds before listing or watching again after a failure: doubled each time, with jitter."""
_HEALTHY_WATCH_SECONDS = 1.0
"""A watch that lasted this long resets the back-off."""


class Informer(Generic[T]):
    """The cached objects of one kind, which may lag behind the server."""

    def __init__(
        self,
        client: Client,
        view: type[T],
        kind: Kind,
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        shared: Callable[[T], T | None] = lambda _: None,
    ) -> None:
        """``shared`` returns the same version of an object from another cache, or None."""
        self._client = client
        self._shared = shared
        self._view = view
        self._kind = kind
        self._namespace = namespace
        self._fields = fields
        self._labels = labels
        self._objects: dict[Key, T] = {}
        self._indexes: dict[Index[T], dict[str, dict[Key, T]]] = {}
        self._handlers: list[Handler[T]] = []
        self._deletion_handlers: list[Callable[[T], None]] = []
        self._synced = asyncio.Event()
        self._last_put: T | None = None
        self._version = ""

    def __repr__(self) -> str:
        return f"Informer({self._kind.resource})"

    @property
    def has_synced(self) -> bool:
        """True if the first list has been stored."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the first list has been stored."""
        await self._synced.wait()

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def items(self) -> ValuesView[T]:
        """Return a view of all cached objects, in no order."""
        return self._objects.values()

    def indexed(self, index: Index[T], value: str) -> list[T]:
        """Return the objects for which an index function yields this value."""
        return list(self._indexes[index].get(value, {}).values())

    def index(self, values: Index[T]) -> None:
        """Add an index by a function, which is also its name: a second call changes nothing."""
        if values in self._indexes:
            return
        table = self._indexes[values] = {}
        for key, item in self._objects.items():
            for value in values(item):
                table.setdefault(value, {})[key] = item

    def handle(self, handler: Handler[T]) -> None:
        """Call ``handler`` for each change, and at once for each object already cached.

        Handlers run inside the update of the cache: they enqueue keys and return.
        """
        self._handlers.append(handler)
        for item in self._objects.values():
            handler(None, item)

    def handle_deleted(self, handler: Callable[[T], None]) -> None:
        """Call ``handler`` with each object of a DELETED event, before it leaves the cache.

        An object that leaves the cache without one may still exist: objects damaged on the server's
        disk are in no list.  With a field selector, DELETED also means that an object ceased to
        match.
        """
        self._deletion_handlers.append(handler)

    async def run(self) -> None:
        """List and watch until cancelled; failures are retried for ever, with back-off."""
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except Gone:
                log.info("watch too old, listing again", kind=self._kind.resource)
                self._version = ""
            except (ApiError, TimeoutError) as error:
                log.warning(
                    "list or watch failed, will retry",
                    kind=self._kind.resource,
                    error=str(error) or "no answer in time",
                )
            duration = asyncio.get_running_loop().time() - started
            failures = 0 if duration >= _HEALTHY_WATCH_SECONDS else failures + 1
            if failures:
                await asyncio.sleep(_delay(failures))

    async def _list(self) -> None:
        async with asyncio.timeout(LIST_SECONDS):
            listed = await self._client.list(
                self._view,
                self._namespace,
                fields=self._fields,
                labels=self._labels,
                kind=self._kind,
            )
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
            self._namespace,
            resource_version=self._version,
            fields=self._fields,
            labels=self._labels,
            timeout_seconds=seconds,
            kind=self._kind,
        )
        async with asyncio.timeout(seconds + _WATCH_GRACE_SECONDS), aclosing(watch) as events:
            async for event in events:
                self._handle_event(event)

    def observe(self, item: T) -> None:
        """Update a cached object from the response to a write, unless the cache is newer.

        So a controller reads its own writes (client-go's MutationCache).
        """
        old = self._objects.get(key_of(item))
        if old is not None and uid_of(old) == uid_of(item):
            self._put(item)

    def clear(self) -> None:
        """Remove every object and call the handlers for it."""
        for key in tuple(self._objects):
            self._remove(key)

    def _handle_event(self, event: WatchEvent[T] | Unreadable | Bookmark) -> None:
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
            cached, new = version_of(old), version_of(item)
            if cached == new or (newer_only and is_older(new, cached)):
                return
        if (same := self._shared(item)) is not None:
            item = same
        elif not is_being_deleted(item):  # else it leaves soon
            if self._last_put is not None:
                # Share equal parts with the object put last, likely of the same set, and with the
                # older version.
                share(item, self._last_put, old)
                key = key_of(item)
            self._last_put = item
        self._objects[key] = item
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
        for values, table in self._indexes.items():
            before = tuple(values(old)) if old is not None else ()
            after = tuple(values(new)) if new is not None else ()
            if before != after:  # rare: most index values never change
                for value in before:
                    members = table[value]
                    members.pop(key, None)
                    if not members:
                        del table[value]
            for value in after:
                table.setdefault(value, {})[key] = new  # type: ignore[assignment]


class Informers:
    """The informers of a process: one for each requested view, kind and selectors."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[tuple[type[msgspec.Struct], str, str, str], Informer[Any]] = {}
        self._by_view: defaultdict[type | str, tuple[Informer[Any], ...]] = defaultdict(tuple)
        """Informers by view; those of ``Partial``, which decodes any kind, by resource.  A response
        is passed to the informers of its view alone."""
        self._running: Background | None = None
        self._tasks: dict[Informer[Any], asyncio.Task[None]] = {}

    def of(
        self, view: type[T], *, fields: str = "", labels: str = "", kind: Kind | None = None
    ) -> Informer[T]:
        """Return the shared informer of a view; it runs as long as ``run`` does."""
        kind = kind or kind_of(view)
        address = (view, kind.resource, fields, labels)
        informer = self._informers.get(address)
        if informer is None:
            informer = self._informers[address] = Informer(
                self._client,
                view,
                kind,
                fields=fields,
                labels=labels,
                shared=partial(self._shared, kind.resource),
            )
            self._by_view[kind.resource if view is Partial else view] += (informer,)
            if self._running is not None:
                self._start(self._running, informer)
        return informer

    def _shared(self, resource: str, item: T) -> T | None:
        """Return the copy that another informer of the same view and kind has cached, or None."""
        view = type(item)
        peers = self._by_view[resource if view is Partial else view]
        if len(peers) == 1:
            return None
        key, version = key_of(item), version_of(item)
        for informer in peers:
            other = informer.get(key)
            if other is not None and version_of(other) == version:
                return cast("T", other)
        return None

    def observe(self, item: msgspec.Struct) -> None:
        """Pass an object from a response to the informers of its view.

        Handlers may request further informers meanwhile: the tuple that is iterated stays as it is.
        """
        for informer in self._by_view[type(item)]:  # none for Partial: its kind is not known here
            informer.observe(item)

    def metadata(self, kind: Kind) -> Informer[Any]:
        """Return an informer of any view of a kind, for controllers that read metadata only.

        An existing one is reused, so that nothing is decoded and cached twice; controllers that
        need a typed view are therefore created first.
        """
        for (_, resource, *selectors), informer in self._informers.items():
            if resource == kind.resource and not any(selectors):
                return informer
        return self.of(Partial, kind=kind)

    def of_kind(self, kind: Kind) -> list[Informer[Any]]:
        """Return the informers of a kind, whatever their view and selector."""
        cached = self._informers.items()
        return [informer for (_, resource, *_), informer in cached if resource == kind.resource]

    def unsynced(self) -> list[str]:
        """Return the resources whose first list has not been stored yet."""
        cached = self._informers.items()
        return sorted({resource for (_, resource, *_), one in cached if not one.has_synced})

    def stop(self, kind: Kind) -> None:
        """Stop and clear the informers of a kind that is no longer served."""
        for informer in self.of_kind(kind):
            self._informers = {
                address: other
                for address, other in self._informers.items()
                if other is not informer
            }
            self._by_view = defaultdict(
                tuple,
                {
                    view: tuple(each for each in peers if each is not informer)
                    for view, peers in self._by_view.items()
                },
            )
            if (task := self._tasks.pop(informer, None)) is not None:
                task.cancel()
            informer.clear()

    async def run(self) -> None:
        """Run every informer until cancelled, also those that are requested later."""
        async with Background() as tasks:
            self._running = tasks
            try:
                for informer in list(self._informers.values()):
                    self._start(tasks, informer)
                await asyncio.Event().wait()
            finally:
                self._running = None

    def _start(self, tasks: Background, informer: Informer[Any]) -> None:
        self._tasks[informer] = tasks.start(informer.run(), name=f"informer-{informer}")


def is_older(version: str, than: str) -> bool:
    """Return whether one resourceVersion is older than another; False if either is no number."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _delay(failures: int) -> float:
    longest = min(FIRST_DELAY * 2.0 ** min(failures - 1, 10), LONGEST_DELAY)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards no secret
