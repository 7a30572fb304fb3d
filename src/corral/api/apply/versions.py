"""Versions of a kind for server-side apply: their types, and conversion between them."""

from corral.api.apply.managers import Compare
from corral.api.apply.types import Difference, Typed
from corral.api.encoding import copied
from corral.api.kind import GroupVersion, Kind
from corral.api.object import Document
from corral.api.schema import structural

_MAX_KINDS = 500
_EMPTY: Document = {"metadata": {}}
_EMPTY_NATIVE: Document = _EMPTY | {"spec": {}, "status": {}}
"""Comparison base of a new object: native types always have these parts."""

_cache: dict[int, "Versions"] = {}


def versions_of(kind: Kind) -> "Versions":
    """Return the versions of a kind, cached."""
    versions = _cache.get(id(kind))
    if versions is None or versions.kind is not kind:
        if len(_cache) >= _MAX_KINDS:  # custom kinds come and go
            _cache.clear()
        versions = _cache[id(kind)] = Versions(kind)
    return versions


class Versions:
    """The versions of a kind.

    The *form* of a version is "" if its documents are as they are stored, else its name.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._empty = _EMPTY_NATIVE if kind.native else _EMPTY
        self._forms = {
            str(GroupVersion(kind.group, version.name)): version.name if version.write else ""
            for version in kind.versions
        }
        self._typed: dict[str, Typed] = {}

    def form(self, api_version: str) -> str | None:
        """Return the form of an apiVersion; None if it is not served."""
        return self._forms.get(api_version)

    def typed(self, form: str) -> Typed:
        """Return the type of documents of a form, cached."""
        typed = self._typed.get(form)
        if typed is None:
            typed = self._typed[form] = Typed(structural(self.kind, form))
        return typed

    def from_stored(self, document: Document, form: str) -> Document:
        """Convert a stored document to a form; the result may be the same object."""
        version = self.kind.by_name.get(form)
        if version is None or version.write is None:
            return document
        document = copied(document)
        version.write(document)
        return document

    def to_stored(self, document: Document, form: str) -> Document:
        """Convert a document of a form to the stored one; the result may be the same object."""
        version = self.kind.by_name.get(form)
        if version is None or version.read is None:
            return document
        document = copied(document)
        version.read(document)
        return document

    def comparer(self, old: Document | None, new: Document) -> Compare:
        """Return a function that compares two stored documents in a version, cached.

        Without an old document, all fields of the new one are added.
        """
        found: dict[str, Difference] = {}

        def compare(api_version: str) -> Difference | None:
            form = self.form(api_version)
            if form is None:
                return None
            if form not in found:
                before = self._empty if old is None else self.from_stored(old, form)
                found[form] = self.typed(form).compare(before, self.from_stored(new, form))
            return found[form]

        return compare
