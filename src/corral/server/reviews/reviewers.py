"""All reviewers, and when they are asked.

Those that change an object are asked first, then come defaults and the server's own rules, then
those that only say yes or no.  Where nobody is concerned nothing is awaited, so a request decides
and stages with nobody in between; where somebody is, it has to look again at what it read before.
"""

from collections.abc import Sequence

from corral.api.object import Document
from corral.server import query
from corral.server.call import Call
from corral.server.reviews.act import Act, Operation, Reviewer
from corral.store import Record


class Reviewers:
    """``mutating`` are asked one after the other before ``validating`` are."""

    def __init__(
        self, mutating: Sequence[Reviewer] = (), validating: Sequence[Reviewer] = ()
    ) -> None:
        self._mutating = mutating
        self._validating = validating

    async def mutate(self, call: Call, document: Document, old: Document | None) -> Document:
        """The document as reviewers want it, still in need of defaults and of all rules."""
        for reviewer in self._mutating:
            if reviewer.concerns(call):
                act = _act(call, document, old)
                await reviewer.review(act)
                assert act.document is not None
                document = act.document
        return document

    async def validate(self, call: Call, document: Document, old: Document | None) -> bool:
        """Ask whether a document may be stored; answers whether time has passed meanwhile."""
        return await self._ask(self._validating, call, document, old)

    async def posted(self, call: Call, document: Document) -> Document:
        """What was sent to a subresource that keeps nothing of it, once all agreed to it."""
        document = await self.mutate(call, document, None)
        await self.validate(call, document, None)
        return document

    async def dismiss(self, call: Call, record: Record) -> bool:
        """Ask whether an object may be deleted; answers whether time has passed meanwhile."""
        everybody = [*self._mutating, *self._validating]
        if not any(reviewer.concerns(call) for reviewer in everybody):
            return False
        return await self._ask(everybody, call, None, record.document())

    async def _ask(
        self,
        reviewers: Sequence[Reviewer],
        call: Call,
        document: Document | None,
        old: Document | None,
    ) -> bool:
        asked = [reviewer for reviewer in reviewers if reviewer.concerns(call)]
        for reviewer in asked:
            await reviewer.review(_act(call, document, old))
        return bool(asked)


def _act(call: Call, document: Document | None, old: Document | None) -> Act:
    operation: Operation = "CREATE" if old is None else "DELETE" if document is None else "UPDATE"
    metadata = (document or old or {}).get("metadata") or {}
    return Act(
        call=call,
        operation=operation,
        document=document,
        old=old,
        name=str(metadata.get("name") or call.name),
        dry=query.dry_run([call.query.get("dryRun", "")], "CreateOptions"),
    )
