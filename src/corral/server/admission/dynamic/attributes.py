"""Admission attributes: one operation on one object under review."""

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

MAX_ANNOTATIONS: Final = 64
MAX_ANNOTATION_CHARACTERS: Final = 10 << 10
"""Limits of the audit annotations that reviewers add to one request."""

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(slots=True, kw_only=True)
class AdmissionAttributes:
    """An operation of a call, before it is executed (Kubernetes' admission.Attributes).

    document: the object to be stored, or the body of a subresource; None for deletions.
    old: the stored object, if there is one.
    name: the object's; empty before the server generates one.
    dry_run: whether it is a dry run.
    options: meta/v1 CreateOptions, UpdateOptions or DeleteOptions.
    """

    call: Call
    operation: Operation
    document: Document | None
    old: Document | None
    name: str
    dry_run: bool = False
    options: Document = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """True if ``document`` is the stored object, not the body of a subresource."""
        shown = self.document or self.old or {}
        kind = self.call.kind
        return shown.get("kind") == kind.name and shown.get(
            "apiVersion"
        ) == validation.stored_api_version(kind)

    def add_annotation(self, key: str, value: str) -> None:
        """Add an annotation to the audit event; a key has one value."""
        annotations = self.call.request.annotations
        if len(annotations) < MAX_ANNOTATIONS and len(value) <= MAX_ANNOTATION_CHARACTERS:
            annotations[key] = value

    def versioned(self, document: Document | None, version: Version) -> Document | None:
        """Return a document converted to a version of its kind, as a copy.

        The object to be stored has the managed fields with which it will be stored.
        """
        if document is None or not self.is_stored:
            return document
        api_version = str(GroupVersion(self.call.kind.group, version.name))
        shown = as_version(copied(document), version, api_version)
        if document is self.document and self.call.managed_fields:
            shown["metadata"]["managedFields"] = copied(self.call.managed_fields)
        return shown

    def from_versioned(self, document: Document, version: Version) -> Document:
        """Convert a mutated result of ``versioned`` back to the stored form.

        Raises BadRequest and Invalid if it does not match its schema.
        """
        if not self.is_stored:
            return document
        if self.call.managed_fields is not None and isinstance(document.get("metadata"), dict):
            # webhooks cannot set managed fields
            document["metadata"].pop("managedFields", None)
        call = replace(self.call, version=version, query={}, warnings=[])
        document = validation.incoming(call, document)
        validation.conform(call, document)
        return document


class Reviewer(Protocol):
    """A webhook or policy plugin; it raises ApiError to deny, and adds warnings to the call."""

    def handles(self, call: Call) -> bool:
        """Return whether it may review such a call; called for each write, so it must be fast."""
        ...

    async def review(self, attr: AdmissionAttributes) -> None:
        """Review an operation; a mutating reviewer changes its document.  Raises ApiError."""
        ...


def namespace_labels(store: Store, attr: AdmissionAttributes) -> Mapping[str, str] | None:
    """Return the labels of the object's namespace, or of a Namespace itself; else None."""
    kind = attr.call.kind
    if (kind.group, kind.plural) == ("", "namespaces"):
        labels: Any = at(attr.document or attr.old, "metadata", "labels")
        return labels or {}
    if not kind.namespaced:
        return None
    record = store.latest("namespaces", Key("", attr.call.namespace))
    return record.labels if record is not None else {}


def new_forbidden(attr: AdmissionAttributes, why: str) -> Forbidden:
    """Return the error of a denied operation (Kubernetes' admission.NewForbidden)."""
    metadata = (attr.document or {}).get("metadata") or {}
    name = attr.name or metadata.get("generateName") or "Unknown"
    return forbidden(attr.call.kind, name, why)
