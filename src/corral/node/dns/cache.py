"""Caches replies of upstream servers for as long as their TTLs allow.  No I/O."""

from collections import OrderedDict
from typing import NamedTuple

from corral.node.dns.codec import Query
from corral.node.dns.records import Name, lowered
from corral.node.dns.reply import Reply

MAX_REPLIES = 1000
MAX_REPLY_BYTES = 4096
"""Together at most 4 MiB."""


class CacheKey(NamedTuple):
    """The parts of a query that two queries must share to get the same reply."""

    name: Name
    type: int
    type_class: int
    dnssec: bool
    checking_disabled: bool


class _Entry(NamedTuple):
    reply: Reply
    stored_at: float


class Cache:
    """Replies by cache key; the least recently used one is evicted."""

    def __init__(self, max_replies: int = MAX_REPLIES) -> None:
        self._max_replies = max_replies
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CacheKey, now: float) -> tuple[Reply, int] | None:
        """Return a valid reply and its age in seconds."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age = int(now - entry.stored_at)
        if age >= entry.reply.cache_seconds:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry.reply, age

    def put(self, key: CacheKey, reply: Reply, now: float) -> None:
        """Store a reply, if it may be cached."""
        if not reply.cache_seconds or len(reply.packet) > MAX_REPLY_BYTES:
            return
        self._entries[key] = _Entry(reply, now)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_replies:
            self._entries.popitem(last=False)


def cache_key(query: Query) -> CacheKey:
    """Return the cache key of a query: without its ID, and in lower case."""
    return CacheKey(
        lowered(query.name), query.type, query.type_class, query.dnssec, query.checking_disabled
    )
