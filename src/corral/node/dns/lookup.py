"""Finds what to answer: the cluster's names at once, all others by asking outside.

Who asks for what somebody else has asked for a moment ago waits for the same reply.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Final

from corral.node.dns.cache import Cache, Question, question_of
from corral.node.dns.codec import IN, Query, addresses, query_for, write
from corral.node.dns.records import Answer, Code, Name, Record, Type
from corral.node.dns.reply import Reply
from corral.node.dns.upstream import Upstream
from corral.node.dns.zone import Zone

LONGEST_CHAIN: Final = 8
"""Names that lead to other names."""
_REQUESTS: Final = range(128, 256)
"""Types that are no data: transfers, ANY (RFC 6895; RFC 8482 lets it be refused)."""

Found = Answer | Reply

FAILED: Final = Answer(code=Code.FAILED, authoritative=False)
REFUSED: Final = Answer(code=Code.REFUSED, authoritative=False)


@dataclass(slots=True, eq=False)
class _Flight:
    """A question that is being asked outside."""

    found: Found = FAILED
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Lookup:
    """What is known inside and outside."""

    def __init__(self, zone: Zone, upstream: Upstream) -> None:
        self._zone = zone
        self._upstream = upstream
        self._cache = Cache()
        self._flights: dict[Question, _Flight] = {}

    def packet(self, query: Query, found: Found, largest: int) -> bytes:
        """The answer to a query as a packet of so many octets at most."""
        if isinstance(found, Reply):
            return found.packet_for(query, 0, largest)
        return write(query, found, largest)

    def find(self, query: Query, largest: int) -> bytes | None:
        """The answer that can be given at once; None where the outside has to be asked."""
        if query.type_class != IN or query.type in _REQUESTS:
            return write(query, REFUSED, largest)
        answer = self._zone.answer(query.name, query.type)
        if answer is not None:
            if _alias(answer) and query.type != Type.CNAME:
                return None
            return write(query, _turned(answer), largest)
        kept = self._cache.get(question_of(query), _now())
        if kept is None:
            return None
        reply, age = kept
        return reply.packet_for(query, age, largest)

    async def fetch(self, query: Query) -> Found:
        """The answer for which the outside has to be asked."""
        question = question_of(query)
        flight = self._flights.get(question)
        if flight is not None:
            await flight.is_over.wait()
            return flight.found
        flight = self._flights[question] = _Flight()
        try:
            answer = self._zone.answer(query.name, query.type)
            flight.found = await (
                self._outside(query) if answer is None else self._followed(query, answer)
            )
            return flight.found
        finally:
            del self._flights[question]
            flight.is_over.set()

    async def _outside(self, query: Query) -> Found:
        reply = await self._upstream.ask(query)
        if reply is None:
            return FAILED
        self._cache.put(question_of(query), reply, _now())
        return reply

    async def _followed(self, query: Query, answer: Answer) -> Answer:
        """An alias (ExternalName), with what it leads to, inside or outside."""
        chain: list[Record] = []
        while (target := _alias(answer)) and len(chain) < LONGEST_CHAIN:
            chain += answer.records
            inside = self._zone.answer(target, query.type)
            if inside is None:
                return await self._outside_behind(query, chain, target)
            answer = inside
        return replace(answer, records=[*chain, *_turned(answer).records])

    async def _outside_behind(self, query: Query, chain: list[Record], target: Name) -> Answer:
        asked = replace(query_for(target, query.type), extended=query.extended)
        kept = self._cache.get(question_of(asked), _now())
        found = kept[0] if kept is not None else await self._outside(asked)
        if not isinstance(found, Reply) or found.code not in (Code.OK, Code.NO_SUCH_NAME):
            return FAILED
        try:
            records = addresses(found.packet)
        except ValueError:
            return FAILED
        return Answer(code=Code(found.code), records=[*chain, *records])


def _alias(answer: Answer) -> Name:
    """Where the only record of an answer leads, if it is an alias."""
    match answer.records:
        case [Record(type=Type.CNAME, data=tuple() as target)]:
            return target
    return ()


def _turned(answer: Answer) -> Answer:
    """The same records beginning with any of them, for most clients take the first."""
    first = random.randrange(len(answer.records) or 1)  # noqa: S311  spreads load, guards nothing
    if not first:
        return answer
    return replace(answer, records=[*answer.records[first:], *answer.records[:first]])


def _now() -> float:
    return asyncio.get_running_loop().time()
