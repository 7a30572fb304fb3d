"""The table of kinds, as the server, the client and the schema look it up."""

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
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_plural.values()))

    def __len__(self) -> int:
        return len(self._by_plural)

    def add(self, kind: Kind) -> None:
        """Serve one more kind, in place of any row of the same group and plural."""
        self._by_plural[kind.group, kind.plural] = kind
        self._by_name[kind.group, kind.name] = kind
        self._by_view[kind.view] = kind
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path names, where that version of it is served."""
        kind = self._by_plural.get((group, plural))
        if kind is None or all(served.name != version for served in kind.versions):
            return None
        return kind

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
            versions.update((version.name, None) for version in kind.versions)
        return tuple(
            GroupVersion(group, version)
            for group, versions in served.items()
            for version in versions
        )

    def served(self, group_version: GroupVersion) -> tuple[Kind, ...]:
        """The kinds of one group and version."""
        group, version = group_version
        return tuple(
            kind
            for kind in self
            if kind.group == group and any(served.name == version for served in kind.versions)
        )
