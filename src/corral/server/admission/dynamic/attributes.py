"""What is reviewed: one operation on one object."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from corral.api.encoding import copied
from corral.api.errors import Forbidden
from corral.api.kind import GroupVersion, Version, at
from corral.api.object import Document, Key
from corral.server.request.call import Call, forbidden
from corral.server.response.presenter import as_version
from corral.server.strategy import validation
from corral.store import Store

MOST_NOTES: Final = 64
LONGEST_NOTE: Final = 10 << 10
"""What reviewers may have the audit log tell of one request."""

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
        ) == validation.stored_api_version(kind)

    def note(self, key: str, value: str) -> None:
        """Have the audit log tell something; a key has one value."""
        notes = self.call.request.annotations
        if len(notes) < MOST_NOTES and len(value) <= LONGEST_NOTE:
            notes[key] = value

    def seen(self, document: Document | None, version: Version) -> Document | None:
        """A document of it in the form of one of its kind's versions; a new one.

        Of what is to be stored it tells who manages which fields, as it will be stored.
        """
        if document is None or not self.is_stored:
            return document
        told = str(GroupVersion(self.call.kind.group, version.name))
        shown = as_version(copied(document), version, told)
        if document is self.document and self.call.account:
            shown["metadata"]["managedFields"] = copied(self.call.account)
        return shown

    def taken(self, document: Document, version: Version) -> Document:
        """What somebody made of what was ``seen``, in the form in which objects are stored.

        Raises BadRequest and Invalid where it does not fit its schema.
        """
        if not self.is_stored:
            return document
        if self.call.account is not None and isinstance(document.get("metadata"), dict):
            # nobody gives an account but the server
            document["metadata"].pop("managedFields", None)
        call = replace(self.call, version=version, query={}, warnings=[])
        document = validation.incoming(call, document)
        validation.conform(call, document)
        return document


class Reviewer(Protocol):
    """One who has a say; it raises ApiError to refuse an act, and may warn through its call."""

    def concerns(self, call: Call) -> bool:
        """Whether it may have anything to say of such a call: asked of each, so it is quick."""
        ...

    async def review(self, act: Act) -> None:
        """Let an act pass, or refuse it; one that changes objects changes the act's document."""
        ...


def namespace_labels(store: Store, act: Act) -> Mapping[str, str] | None:
    """The labels of the namespace that an act is in, or is about; None for all others."""
    kind = act.call.kind
    if (kind.group, kind.plural) == ("", "namespaces"):
        labels: Any = at(act.document or act.old, "metadata", "labels")
        return labels or {}
    if not kind.namespaced:
        return None
    record = store.latest("namespaces", Key("", act.call.namespace))
    return record.labels if record is not None else {}


def refused(act: Act, why: str) -> Forbidden:
    """The refusal of an act; its object may have no name yet."""
    metadata = (act.document or {}).get("metadata") or {}
    name = act.name or metadata.get("generateName") or "Unknown"
    return forbidden(act.call.kind, name, why)
