"""The dispatch of operations to all reviewers.

Mutating reviewers come first, then defaults and built-in plugins, then validating reviewers.  If
none handles a call, nothing is awaited, so that a request evaluates and stages without interleaving
requests; otherwise it has to check again what it read before.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs

from corral.api.encoding import encode
from corral.api.object import Document
from corral.server.admission.dynamic.attributes import AdmissionAttributes, Operation, Reviewer
from corral.server.request import body, query
from corral.server.request.call import Call
from corral.server.strategy import object_meta, validation
from corral.store import Record

_CONNECT_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
}
"""Kinds of the options of connections to pods."""
_CONNECT_OPTIONS: Final[Mapping[str, Callable[[list[str]], Any]]] = {
    **dict.fromkeys(
        ("stdin", "stdout", "stderr", "tty"), lambda values: values[0] in ("1", "true")
    ),
    "container": lambda values: values[0],
    "command": list,
    "ports": lambda values: [int(port) for port in values if port.isdecimal()],
}


class Reviewers:
    """The mutating and validating reviewers of a server.

    ``close`` closes their connections.
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
        """Return the document as mutated by reviewers, before defaults and validation."""
        if self.mutates(call):
            return await self._run_mutating(call, document, old)
        return document

    def mutates(self, call: Call) -> bool:
        """Return whether any mutating reviewer handles a call."""
        return any(reviewer.handles(call) for reviewer in self._mutating)

    async def _run_mutating(self, call: Call, document: Document, old: Document | None) -> Document:
        attr = _attributes(call, document, old)
        if attr.is_stored:  # reviewers see it with defaults
            call.kind.default(document)
        for reviewer in self._mutating:
            if reviewer.handles(call):
                await reviewer.review(attr)
        assert attr.document is not None
        if old is None and attr.is_stored:
            object_meta.clear_server_fields(attr.document)
        return attr.document

    async def validate(self, call: Call, document: Document, old: Document | None) -> bool:
        """Run validating reviewers on a document; return whether any was awaited."""
        for reviewer in self._validating:
            if reviewer.handles(call):
                return await self._review_all(self._validating, call, document, old)
        return False

    async def admit_posted(self, call: Call, document: Document) -> Document:
        """Return the body of a subresource that is not stored, after all reviewers."""
        document = await self.mutate(call, document, None)
        await self.validate(call, document, None)
        return document

    async def admit_request(self, call: Call) -> Call:
        """Return the create call of a kind that is not stored, such as reviews, after reviewers."""
        all_reviewers = (*self._mutating, *self._validating)
        if call.verb != "create" or not any(reviewer.handles(call) for reviewer in all_reviewers):
            return call
        document = await self.admit_posted(call, validation.incoming(call, body.read(call)))
        headers = {**call.request.headers, "content-type": body.JSON}
        return replace(call, request=replace(call.request, headers=headers, body=encode(document)))

    async def admit_connect(self, call: Call) -> None:
        """Run all reviewers on a CONNECT to a pod: exec, port-forward."""
        options_kind = _CONNECT_KINDS.get((call.kind.resource, call.subresource))
        all_reviewers = (*self._mutating, *self._validating)
        if options_kind is None or not any(reviewer.handles(call) for reviewer in all_reviewers):
            return
        parameters = parse_qs(call.request.query)
        options = {
            name: read(parameters[name])
            for name, read in _CONNECT_OPTIONS.items()
            if name in parameters
        }
        attr = _attributes(call, {"kind": options_kind, "apiVersion": "v1", **options}, None)
        attr.operation, attr.options = "CONNECT", {}
        for reviewer in all_reviewers:
            if reviewer.handles(call):
                await reviewer.review(attr)

    async def admit_deletion(self, call: Call, record: Record) -> bool:
        """Run all reviewers on a deletion; return whether any was awaited."""
        all_reviewers = (*self._mutating, *self._validating)
        for reviewer in all_reviewers:
            if reviewer.handles(call):
                return await self._review_all(all_reviewers, call, None, record.document())
        return False

    async def _review_all(
        self,
        reviewers: Sequence[Reviewer],
        call: Call,
        document: Document | None,
        old: Document | None,
    ) -> bool:
        attr = _attributes(call, document, old)
        for reviewer in reviewers:
            if reviewer.handles(call):
                await reviewer.review(attr)
        return True

    async def aclose(self) -> None:
        """Close the connections of reviewers."""
        if self._close is not None:
            await self._close()


def _attributes(call: Call, document: Document | None, old: Document | None) -> AdmissionAttributes:
    operation: Operation = "CREATE" if old is None else "DELETE" if document is None else "UPDATE"
    metadata = (document or old or {}).get("metadata") or {}
    options_kind = f"{operation.title()}Options"
    dry_run = query.dry_run([call.query.get("dryRun", "")], options_kind)
    options: Document = {"kind": options_kind, "apiVersion": "meta.k8s.io/v1"}
    options |= {"dryRun": ["All"]} if dry_run else {}
    fields = ("fieldManager", "fieldValidation") if document is not None else ()
    return AdmissionAttributes(
        call=call,
        operation=operation,
        document=document,
        old=old,
        name=str(metadata.get("name") or call.name),
        dry_run=dry_run,
        options=options | {name: call.query[name] for name in fields if call.query.get(name)},
    )
