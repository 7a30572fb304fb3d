"""The versions of a kind as an account needs them: types, and documents in other terms."""

from corral.api.apply.managers import Compare
from corral.api.apply.types import Difference, Typed
from corral.api.encoding import copied
from corral.api.kind import GroupVersion, Kind
from corral.api.object import Document
from corral.api.schema import structural

_MOST_KINDS = 500
_NOTHING: Document = {"metadata": {}}
_NOTHING_NATIVE: Document = _NOTHING | {"spec": {}, "status": {}}
"""What a new object is compared with: Kubernetes' own types always have these parts."""

_known: dict[int, "Terms"] = {}


def terms_of(kind: Kind) -> "Terms":
    """The terms of a kind, made when they are first asked for."""
    terms = _known.get(id(kind))
    if terms is None or terms.kind is not kind:
        if len(_known) >= _MOST_KINDS:  # kinds come and go
            _known.clear()
        terms = _known[id(kind)] = Terms(kind)
    return terms


class Terms:
    """A kind in the terms of its versions.

    A version's *form* is its name where its documents are not those that are stored, else empty.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._nothing = _NOTHING_NATIVE if kind.native else _NOTHING
        self._forms = {
            str(GroupVersion(kind.group, version.name)): version.name if version.write else ""
            for version in kind.versions
        }
        self._typed: dict[str, Typed] = {}

    def form(self, api_version: str) -> str | None:
        """The form of a version; None where there is no such version."""
        return self._forms.get(api_version)

    def typed(self, form: str) -> Typed:
        """What documents of a form are made of."""
        typed = self._typed.get(form)
        if typed is None:
            typed = self._typed[form] = Typed(structural(self.kind, form))
        return typed

    def told(self, document: Document, form: str) -> Document:
        """A stored document in another form; it may be the same one."""
        version = self.kind.by_name.get(form)
        if version is None or version.write is None:
            return document
        document = copied(document)
        version.write(document)
        return document

    def stored(self, document: Document, form: str) -> Document:
        """What ``told`` was made of, as far as it can be known."""
        version = self.kind.by_name.get(form)
        if version is None or version.read is None:
            return document
        document = copied(document)
        version.read(document)
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
