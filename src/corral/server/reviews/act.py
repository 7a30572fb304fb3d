"""What is reviewed: one operation on one object."""

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from corral.api.encoding import copied
from corral.api.kind import GroupVersion, Version
from corral.api.object import Document
from corral.server import admission
from corral.server.call import Call
from corral.server.present import as_version

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(slots=True, kw_only=True)
class Act:
    """An operation that a call is about to do.

    document: the object as it is to be stored, or what a subresource is sent; none for deletions.
    old: the stored object, where there is one.
    name: of the object; empty where the server is yet to make one up.
    dry: whether it is only tried.
    options: how it is to be done, as clients say it (meta/v1 CreateOptions and others).
    """

    call: Call
    operation: Operation
    document: Document | None
    old: Document | None
    name: str
    dry: bool = False
    options: Document = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """Whether it is about the stored object, and not about what a subresource is sent."""
        shown = self.document or self.old or {}
        kind = self.call.kind
        return shown.get("kind") == kind.name and shown.get(
            "apiVersion"
        ) == admission.stored_api_version(kind)

    def seen(self, document: Document | None, version: Version) -> Document | None:
        """A document of it in the form of one of its kind's versions; a new one."""
        if document is None or not self.is_stored:
            return document
        told = str(GroupVersion(self.call.kind.group, version.name))
        return as_version(copied(document), version, told)

    def taken(self, document: Document, version: Version) -> Document:
        """What somebody made of what was ``seen``, in the form in which objects are stored.

        Raises BadRequest and Invalid where it does not fit its schema.
        """
        if not self.is_stored:
            return document
        call = replace(self.call, version=version, query={}, warnings=[])
        document = admission.incoming(call, document)
        admission.conform(call, document, creating=self.old is None)
        return document


class Reviewer(Protocol):
    """One who has a say; it raises ApiError to refuse an act, and may warn through its call."""

    def concerns(self, call: Call) -> bool:
        """Whether it may have anything to say of such a call: asked of each, so it is quick."""
        ...

    async def review(self, act: Act) -> None:
        """Let an act pass, or refuse it; one that changes objects changes the act's document."""
        ...
