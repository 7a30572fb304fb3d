"""The table of kinds, with indexes for the server, the client and the schema."""

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
        """Incremented by every change: caches derived from the table are valid while it stays."""
        self._served: dict[tuple[str, str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_plural.values()))

    def __len__(self) -> int:
        return len(self._by_plural)

    def add(self, kind: Kind) -> None:
        """Add a kind, replacing any row of the same group and plural."""
        replaced = self._by_plural.get((kind.group, kind.plural))
        if replaced is not None:
            self.remove(replaced)
        self._by_plural[kind.group, kind.plural] = kind
        self._by_name[kind.group, kind.name] = kind
        if kind.schemas is None:  # custom kinds share one view
            self._by_view[kind.view] = kind
        for version in kind.versions:
            if version.served:
                path = (kind.group, version.name, kind.plural)
                self._served[path] = kind.rows.get(version.name, kind)
        self.changes += 1

    def remove(self, kind: Kind) -> None:
        """Remove a kind."""
        del self._by_plural[kind.group, kind.plural]
        del self._by_name[kind.group, kind.name]
        for version in kind.versions:
            self._served.pop((kind.group, version.name, kind.plural), None)
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path, None if that version of it is not served."""
        return self._served.get((group, version, plural))

    def by_kind(self, group: str, name: str) -> Kind | None:
        """Return the kind by its group and name; None if there is none."""
        return self._by_name.get((group, name))

    def of_view(self, view: type[msgspec.Struct]) -> Kind:
        """Return the kind of a view.  Raises KeyError if there is none."""
        return self._by_view[view]

    def group_versions(self) -> tuple[GroupVersion, ...]:
        """Return groups, in the order of their first kind, and versions, preferred ones first."""
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
        """Return the kinds of one group and version."""
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
    """Return the sort key of a version: ``v10``, ``v2``, ``v2beta1``, ``v1alpha1``, others.

    Stable versions come first, newer before older; names of another form come last (Kubernetes).
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_STAGES), 0, 0, version
    return _STAGES[match[2]], -int(match[1]), -int(match[3] or 0), ""
