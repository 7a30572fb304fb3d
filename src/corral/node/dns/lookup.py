"""Answers queries: names of the cluster from the zone, others by forwarding.

Concurrent queries with the same question share one forwarded query.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Final

from corral.node.dns.cache import Cache, CacheKey, cache_key
from corral.node.dns.codec import CLASS_IN, Query, addresses, encode_answer, make_query
from corral.node.dns.records import Answer, Code, Name, Record, Type
from corral.node.dns.reply import Reply
from corral.node.dns.upstream import Upstream
from corral.node.dns.zone import Zone

MAX_ALIASES: Final = 8
"""Aliases that are followed."""
_META_TYPES: Final = range(128, 256)
"""Types that are no data: transfers, ANY (RFC 6895; RFC 8482 allows to refuse it)."""

Result = Answer | Reply

SERVFAIL: Final = Answer(code=Code.SERVFAIL, authoritative=False)
REFUSED: Final = Answer(code=Code.REFUSED, authoritative=False)


@dataclass(slots=True, eq=False)
class _PendingQuery:
    """A forwarded query that others may wait for."""

    result: Result = SERVFAIL
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Lookup:
    """Answers queries from the zone, the cache and the upstream servers."""

    def __init__(self, zone: Zone, upstream: Upstream) -> None:
        self._zone = zone
        self._upstream = upstream
        self._cache = Cache()
        self._pending: dict[CacheKey, _PendingQuery] = {}

    def encode(self, query: Query, result: Result, max_bytes: int) -> bytes:
        """Encode a result as the response to a query."""
        if isinstance(result, Reply):
            return result.packet_for(query, 0, max_bytes)
        return encode_answer(query, result, max_bytes)

    def answer_locally(self, query: Query, max_bytes: int) -> bytes | None:
        """Return the response, if the zone or the cache has it; None if it must be forwarded."""
        if query.type_class != CLASS_IN or query.type in _META_TYPES:
            return encode_answer(query, REFUSED, max_bytes)
        answer = self._zone.answer(query.name, query.type)
        if answer is not None:
            if _alias(answer) and query.type != Type.CNAME:
                return None
            return encode_answer(query, _rotated(answer), max_bytes)
        cached = self._cache.get(cache_key(query), _now())
        if cached is None:
            return None
        reply, age = cached
        return reply.packet_for(query, age, max_bytes)

    async def resolve(self, query: Query) -> Result:
        """Return the result of a query that must be forwarded, at least in part."""
        key = cache_key(query)
        pending = self._pending.get(key)
        if pending is not None:
            await pending.done.wait()
            return pending.result
        pending = self._pending[key] = _PendingQuery()
        try:
            answer = self._zone.answer(query.name, query.type)
            pending.result = await (
                self._forward(query) if answer is None else self._resolve_alias(query, answer)
            )
            return pending.result
        finally:
            del self._pending[key]
            pending.done.set()

    async def _forward(self, query: Query) -> Result:
        reply = await self._upstream.query(query)
        if reply is None:
            return SERVFAIL
        self._cache.put(cache_key(query), reply, _now())
        return reply

    async def _resolve_alias(self, query: Query, answer: Answer) -> Answer:
        """Resolve an alias (ExternalName) in the zone or upstream."""
        chain: list[Record] = []
        while (target := _alias(answer)) and len(chain) < MAX_ALIASES:
            chain += answer.records
            local = self._zone.answer(target, query.type)
            if local is None:
                return await self._forward_alias(query, chain, target)
            answer = local
        return replace(answer, records=[*chain, *_rotated(answer).records])

    async def _forward_alias(self, query: Query, chain: list[Record], target: Name) -> Answer:
        target_query = replace(make_query(target, query.type), extended=query.extended)
        cached = self._cache.get(cache_key(target_query), _now())
        result = cached[0] if cached is not None else await self._forward(target_query)
        if not isinstance(result, Reply) or result.code not in (Code.NOERROR, Code.NXDOMAIN):
            return SERVFAIL
        try:
            records = addresses(result.packet)
        except ValueError:
            return SERVFAIL
        return Answer(code=Code(result.code), records=[*chain, *records])


def _alias(answer: Answer) -> Name:
    """Return the target of an answer that is an alias; else an empty name."""
    match answer.records:
        case [Record(type=Type.CNAME, data=tuple() as target)]:
            return target
    return ()


def _rotated(answer: Answer) -> Answer:
    """Rotate the records randomly: most clients use the first."""
    first = random.randrange(len(answer.records) or 1)  # noqa: S311  spreads load, guards nothing
    if not first:
        return answer
    return replace(answer, records=[*answer.records[first:], *answer.records[:first]])


def _now() -> float:
    return asyncio.get_running_loop().time()
