"""The table of kinds, as the server, the client and the schema look it up."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from corral.api.kind import GroupVersion, Kind


class KindTable:
    """Kinds in the order of discovery; rows can be added while the server runs.

    Some kinds are served by several groups that share one storage (events): each group has its
    row, and ``Kind.stored_as`` of the others names the one under which objects are stored.
    """

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_plural: dict[tuple[str, str], Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        self._by_view: dict[type[msgspec.Struct], Kind] = {}
        self.changes = 0
        """Grows with every change: who makes something of all kinds keeps it while this stays."""
        self._served: dict[tuple[str, str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_plural.values()))

    def __len__(self) -> int:
        return len(self._by_plural)

    def add(self, kind: Kind) -> None:
        """Serve one more kind, in place of any row of the same group and plural."""
        earlier = self._by_plural.get((kind.group, kind.plural))
        if earlier is not None:
            self.remove(earlier)
        self._by_plural[kind.group, kind.plural] = kind
        self._by_name[kind.group, kind.name] = kind
        if kind.schemas is None:  # kinds that are brought at run time share one view
            self._by_view[kind.view] = kind
        for version in kind.versions:
            if version.served:
                address = (kind.group, version.name, kind.plural)
                self._served[address] = kind.rows.get(version.name, kind)
        self.changes += 1

    def remove(self, kind: Kind) -> None:
        """Serve a kind no more."""
        del self._by_plural[kind.group, kind.plural]
        del self._by_name[kind.group, kind.name]
        for version in kind.versions:
            self._served.pop((kind.group, version.name, kind.plural), None)
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path names, where that version of it is served."""
        return self._served.get((group, version, plural))

    def by_kind(self, group: str, name: str) -> Kind | None:
        """The kind that ``apiVersion`` and ``kind`` of a document name."""
        return self._by_name.get((group, name))

    def of_view(self, view: type[msgspec.Struct]) -> Kind:
        """The kind whose documents a view reads; KeyError when none does."""
        return self._by_view[view]

    def group_versions(self) -> tuple[GroupVersion, ...]:
        """What is served: groups in the order of their first kind, versions preferred first."""
        served: dict[str, dict[str, None]] = {}
        for kind in self:
            versions = served.setdefault(kind.group, {})
            versions.update((version.name, None) for version in kind.versions if version.served)
        return tuple(
            GroupVersion(group, version)
            for group, versions in served.items()
            for version in sorted(versions, key=preference)
        )

    def served(self, group_version: GroupVersion) -> tuple[Kind, ...]:
        """The kinds of one group and version."""
        group, version = group_version
        return tuple(
            found
            for kind in self
            if kind.group == group
            and (found := self._served.get((group, version, kind.plural))) is not None
        )


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?", re.ASCII)
_STAGES = {None: 0, "beta": 1, "alpha": 2}


def preference(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: ``v10``, ``v2``, ``v2beta1``, ``v1alpha1``, rest.

    First those that are stable, the newest before the others; names of another form come last.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_STAGES), 0, 0, version
    return _STAGES[match[2]], -int(match[1]), -int(match[3] or 0), ""
