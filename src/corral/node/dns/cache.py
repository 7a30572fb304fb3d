"""Remembers what servers of the outside replied, for as long as they allow.  Pure."""

from collections import OrderedDict
from typing import NamedTuple

from corral.node.dns.codec import Query
from corral.node.dns.records import Name, lowered
from corral.node.dns.reply import Reply

MOST_REPLIES = 1000
LARGEST_REPLY = 4096
"""Together at most 4 MiB."""


class Question(NamedTuple):
    """What has to be the same for a reply to be good for two queries."""

    name: Name
    type: int
    type_class: int
    dnssec: bool
    checking_disabled: bool


class _Kept(NamedTuple):
    reply: Reply
    since: float


class Cache:
    """Replies by question; the one that was not asked for the longest time makes room."""

    def __init__(self, most: int = MOST_REPLIES) -> None:
        self._most = most
        self._kept: OrderedDict[Question, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, question: Question, now: float) -> tuple[Reply, int] | None:
        """A reply that is still good, and its age in seconds."""
        kept = self._kept.get(question)
        if kept is None:
            return None
        age = int(now - kept.since)
        if age >= kept.reply.lifetime:
            del self._kept[question]
            return None
        self._kept.move_to_end(question)
        return kept.reply, age

    def put(self, question: Question, reply: Reply, now: float) -> None:
        """Remember a reply, if it may be."""
        if not reply.lifetime or len(reply.packet) > LARGEST_REPLY:
            return
        self._kept[question] = _Kept(reply, now)
        self._kept.move_to_end(question)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


def question_of(query: Query) -> Question:
    """What a query asks, apart from who asks and how the letters are written."""
    return Question(
        lowered(query.name), query.type, query.type_class, query.dnssec, query.checking_disabled
    )
