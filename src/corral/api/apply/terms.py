"""The versions of a kind as an account needs them: types, and documents in other terms."""

from collections.abc import Mapping
from typing import Any

from corral.api.apply.managers import Compare
from corral.api.apply.types import Difference, Typed
from corral.api.encoding import copied
from corral.api.kind import Kind, Version
from corral.api.object import Document
from corral.api.schema import structural

_MOST_TYPES = 500
_NOTHING: Document = {"metadata": {}}
_NOTHING_NATIVE: Document = _NOTHING | {"spec": {}, "status": {}}
"""What a new object is compared with: Kubernetes' own types always have these parts."""

_typed: dict[int, tuple[Mapping[str, Any], Typed]] = {}


class Terms:
    """A kind in the terms of its versions.

    A version's *form* is its name where its documents are not those that are stored, else empty.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._nothing = _NOTHING_NATIVE if kind.native else _NOTHING

    def form(self, api_version: str) -> str | None:
        """The form of a version; None where there is no such version."""
        version = self._version(api_version)
        if version is None:
            return None
        return "" if version.write is None else version.name

    def typed(self, form: str) -> Typed:
        schema = structural(self._kind, form)
        made = _typed.get(id(schema))
        if made is None or made[0] is not schema:
            if len(_typed) >= _MOST_TYPES:  # kinds come and go
                _typed.clear()
            made = _typed[id(schema)] = schema, Typed(schema)
        return made[1]

    def told(self, document: Document, form: str) -> Document:
        """A stored document in another form; it may be the same one."""
        write = next((each.write for each in self._kind.versions if each.name == form), None)
        if write is None:
            return document
        document = copied(document)
        write(document)
        return document

    def stored(self, document: Document, form: str) -> Document:
        """What ``told`` was made of, as far as it can be known."""
        read = next((each.read for each in self._kind.versions if each.name == form), None)
        if read is None:
            return document
        document = copied(document)
        read(document)
        return document

    def comparing(self, old: Document | None, new: Document) -> Compare:
        """How two stored documents differ, in the terms of each version; None for unknown ones.

        Without an old one all of the new one is added.
        """
        found: dict[str, Difference] = {}

        def compare(api_version: str) -> Difference | None:
            form = self.form(api_version)
            if form is None:
                return None
            if form not in found:
                before = self._nothing if old is None else self.told(old, form)
                found[form] = self.typed(form).compare(before, self.told(new, form))
            return found[form]

        return compare

    def _version(self, api_version: str) -> Version | None:
        group, _, name = api_version.rpartition("/")
        if group != self._kind.group:
            return None
        return next((each for each in self._kind.versions if each.name == name), None)
