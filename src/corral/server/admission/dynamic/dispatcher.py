"""All reviewers, and when they are asked.

Those that change an object are asked first, then come defaults and the server's own rules, then
those that only say yes or no.  Where nobody is concerned nothing is awaited, so a request decides
and stages with nobody in between; where somebody is, it has to look again at what it read before.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs

from corral.api.encoding import encode
from corral.api.object import Document
from corral.server.admission.dynamic.attributes import Act, Operation, Reviewer
from corral.server.request import body, query
from corral.server.request.call import Call
from corral.server.strategy import object_meta, validation
from corral.store import Record

_CONNECTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
}
"""How those who connect to a pod say what they want."""
_TOLD: Final[Mapping[str, Callable[[list[str]], Any]]] = {
    **dict.fromkeys(("stdin", "stdout", "stderr", "tty"), lambda said: said[0] in ("1", "true")),
    "container": lambda said: said[0],
    "command": list,
    "ports": lambda said: [int(port) for port in said if port.isdecimal()],
}


class Reviewers:
    """``mutating`` are asked one after the other before ``validating`` are.

    ``close`` ends what they have open.
    """

    def __init__(
        self,
        mutating: Sequence[Reviewer] = (),
        validating: Sequence[Reviewer] = (),
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._mutating = mutating
        self._validating = validating
        self._close = close

    async def mutate(self, call: Call, document: Document, old: Document | None) -> Document:
        """The document as reviewers want it, still in need of defaults and of all rules."""
        if self.mutates(call):
            return await self._mutated(call, document, old)
        return document

    def mutates(self, call: Call) -> bool:
        """Whether somebody might change what a call stores."""
        return any(reviewer.concerns(call) for reviewer in self._mutating)

    async def _mutated(self, call: Call, document: Document, old: Document | None) -> Document:
        act = _act(call, document, old)
        if act.is_stored:  # it is shown as it will be
            call.kind.default(document)
        for reviewer in self._mutating:
            if reviewer.concerns(call):
                await reviewer.review(act)
        assert act.document is not None
        if old is None and act.is_stored:
            object_meta.disown(act.document)
        return act.document

    async def validate(self, call: Call, document: Document, old: Document | None) -> bool:
        """Ask whether a document may be stored; answers whether time has passed meanwhile."""
        for reviewer in self._validating:
            if reviewer.concerns(call):
                return await self._ask(self._validating, call, document, old)
        return False

    async def posted(self, call: Call, document: Document) -> Document:
        """What was sent to a subresource that keeps nothing of it, once all agreed to it."""
        document = await self.mutate(call, document, None)
        await self.validate(call, document, None)
        return document

    async def admit_request(self, call: Call) -> Call:
        """A question that is answered and not kept, as those want it who had a say in it."""
        everybody = (*self._mutating, *self._validating)
        if call.verb != "create" or not any(reviewer.concerns(call) for reviewer in everybody):
            return call
        document = await self.posted(call, validation.incoming(call, body.read(call)))
        headers = {**call.request.headers, "content-type": body.JSON}
        return replace(call, request=replace(call.request, headers=headers, body=encode(document)))

    async def connect(self, call: Call) -> None:
        """Ask whether somebody may be connected to what is inside of a pod."""
        form = _CONNECTIONS.get((call.kind.resource, call.subresource))
        everybody = (*self._mutating, *self._validating)
        if form is None or not any(reviewer.concerns(call) for reviewer in everybody):
            return
        told = parse_qs(call.request.query)
        options = {name: read(told[name]) for name, read in _TOLD.items() if name in told}
        act = _act(call, {"kind": form, "apiVersion": "v1", **options}, None)
        act.operation, act.options = "CONNECT", {}
        for reviewer in everybody:
            if reviewer.concerns(call):
                await reviewer.review(act)

    async def dismiss(self, call: Call, record: Record) -> bool:
        """Ask whether an object may be deleted; answers whether time has passed meanwhile."""
        everybody = (*self._mutating, *self._validating)
        for reviewer in everybody:
            if reviewer.concerns(call):
                return await self._ask(everybody, call, None, record.document())
        return False

    async def _ask(
        self,
        reviewers: Sequence[Reviewer],
        call: Call,
        document: Document | None,
        old: Document | None,
    ) -> bool:
        act = _act(call, document, old)
        for reviewer in reviewers:
            if reviewer.concerns(call):
                await reviewer.review(act)
        return True

    async def aclose(self) -> None:
        """Let go of all connections to reviewers."""
        if self._close is not None:
            await self._close()


def _act(call: Call, document: Document | None, old: Document | None) -> Act:
    operation: Operation = "CREATE" if old is None else "DELETE" if document is None else "UPDATE"
    metadata = (document or old or {}).get("metadata") or {}
    form = f"{operation.title()}Options"
    dry = query.dry_run([call.query.get("dryRun", "")], form)
    options: Document = {"kind": form, "apiVersion": "meta.k8s.io/v1"}
    options |= {"dryRun": ["All"]} if dry else {}
    asked = ("fieldManager", "fieldValidation") if document is not None else ()
    return Act(
        call=call,
        operation=operation,
        document=document,
        old=old,
        name=str(metadata.get("name") or call.name),
        dry=dry,
        options=options | {name: call.query[name] for name in asked if call.query.get(name)},
    )
