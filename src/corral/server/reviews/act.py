"""What is reviewed: one operation on one object."""

from dataclasses import dataclass
from typing import Literal, Protocol

from corral.api.object import Document
from corral.server.call import Call

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(slots=True, kw_only=True)
class Act:
    """An operation that a call is about to do.

    document: the object as it is to be stored, or what a subresource is sent; none for deletions.
    old: the stored object, where there is one.
    name: of the object; empty where the server is yet to make one up.
    dry: whether it is only tried.
    """

    call: Call
    operation: Operation
    document: Document | None
    old: Document | None
    name: str
    dry: bool = False


class Reviewer(Protocol):
    """One who has a say; it raises ApiError to refuse an act, and may warn through its call."""

    def concerns(self, call: Call) -> bool:
        """Whether it may have anything to say of such a call: asked of each, so it is quick."""
        ...

    async def review(self, act: Act) -> None:
        """Let an act pass, or refuse it; one that changes objects changes the act's document."""
        ...
