"""Applying a configuration: the merged document, and its managed fields."""

from collections.abc import Iterable, Sequence

from corral.api.apply.field_sets import (
    LEAF,
    Fields,
    difference,
    intersection,
    paths,
    sorted_set,
    union,
    union_of,
)
from corral.api.apply.managers import Entry, Writer, ordered
from corral.api.apply.versions import Versions
from corral.api.errors import MAX_CAUSES, Cause, Conflict, Details, limited
from corral.api.object import Document


class ConflictingManagers(Conflict):
    """The configuration changes fields of other managers.

    conflicts: the entries of those managers, each with the conflicting fields.
    """

    def __init__(self, conflicts: Sequence[tuple[Entry, Fields]]) -> None:
        self.conflicts = conflicts
        found = [(_manager(entry), path) for entry, fields in conflicts for path in paths(fields)]
        causes = [
            Cause(path, f"conflict with {who}", "FieldManagerConflict") for who, path in found
        ]
        super().__init__(_message(found), details=Details(causes=limited(causes)))

    def forgive(self, fields: Fields) -> None:
        """Raise ConflictingManagers for the conflicts about other paths than these, if any."""
        left = [(entry, difference(conflicting, fields)) for entry, conflicting in self.conflicts]
        if left := [(entry, conflicting) for entry, conflicting in left if conflicting]:
            raise ConflictingManagers(left)


def apply(
    versions: Versions,
    live: Document,
    configuration: Document,
    entries: Iterable[Entry],
    writer: Writer,
    *,
    force: bool,
    now: str,
) -> tuple[Document, list[Entry]]:
    """Apply a configuration to a live object; return the object and its managed fields.

    Documents are of the writer's version, and the configuration is valid for its type.  Raises
    ConflictingManagers, unless ``force`` takes the fields from the other managers.
    """
    form = versions.form(writer.api_version) or ""
    typed = versions.typed(form)
    others = [entry for entry in entries if not writer.owns(entry)]
    last = next((entry for entry in entries if writer.owns(entry)), None)
    applied = sorted_set(typed.applied(configuration))
    document = typed.merged(live, configuration)
    if last is not None:
        managed_fields = [*others, writer.entry(applied, None)]
        if versions.form(last["apiVersion"]) != form or difference(last["fieldsV1"], applied):
            pruned = _Pruning(versions, form, managed_fields).prune(document, last)
            # Pruning removes empty objects; merge again those that the configuration has.
            document = typed.merged(pruned, configuration)
    others = _without_changed(versions, form, live, document, others, force=force)
    time = now if document != live else (last or {}).get("time")
    own = [writer.entry(applied, time)] if applied else []
    return document, ordered([*others, *own])


def _without_changed(
    versions: Versions,
    form: str,
    live: Document,
    document: Document,
    others: list[Entry],
    *,
    force: bool,
) -> list[Entry]:
    """Return the entries of other managers without the changed fields.

    Raises ConflictingManagers if they manage a field that changes, unless ``force``.
    """
    compare = versions.comparer(versions.to_stored(live, form), versions.to_stored(document, form))
    conflicts, left = [], []
    for entry in others:
        compared = compare(entry["apiVersion"])
        if compared is None:
            continue
        changed, removed = compared
        fields = entry["fieldsV1"]
        if conflict := intersection(fields, changed):
            conflicts.append((entry, conflict))
        if fields := difference(difference(fields, changed), removed):
            left.append(entry | {"fieldsV1": fields})
    if conflicts and not force:
        raise ConflictingManagers(conflicts)
    return left


class _Pruning:
    """Removes fields that a writer applied before and does not apply any more.

    managed_fields: the entries after the operation.
    """

    def __init__(self, versions: Versions, form: str, managed_fields: Iterable[Entry]) -> None:
        self._versions = versions
        self._form = form
        managed: dict[str, list[Fields]] = {}
        for entry in managed_fields:
            of = versions.form(entry["apiVersion"])
            if of is not None:
                managed.setdefault(of, []).append(entry["fieldsV1"])
        self._managed = {of: union_of(fields) for of, fields in managed.items()}

    def prune(self, merged: Document, last: Entry) -> Document:
        """Return the document without the fields of the last entry that are not managed now."""
        last_form = self._versions.form(last["apiVersion"])
        if last_form is None:
            return merged
        whole = self._converted(merged, self._form, last_form)
        typed = self._versions.typed(last_form)
        every = typed.named(typed.applied(whole))
        before = typed.named(last["fieldsV1"])
        pruned = typed.without(whole, before, bare=True)
        for form in sorted(self._managed, key=lambda form: form != last_form):
            pruned = self._with_managed(
                whole, pruned, last_form, form, every if form == last_form else None
            )
        absent = difference(every, typed.named(typed.applied(pruned)))
        pruned = typed.without(whole, intersection(absent, before))
        return self._converted(pruned, last_form, self._form)

    def _with_managed(
        self, whole: Document, pruned: Document, last_form: str, form: str, every: Fields | None
    ) -> Document:
        """Return a pruned document with the fields put back that are managed in a version.

        Empty objects stay, because they may hold fields that nobody manages.  ``every``: all fields
        of the whole document in this version; computed if None.
        """
        typed = self._versions.typed(form)
        whole, pruned = (
            self._converted(whole, last_form, form),
            self._converted(pruned, last_form, form),
        )
        kept = union(typed.named(typed.applied(pruned)), typed.named(self._managed.get(form, LEAF)))
        if every is None:
            every = typed.named(typed.applied(whole))
        left = typed.without(whole, difference(every, kept), bare=True)
        return self._converted(left, form, last_form)

    def _converted(self, document: Document, source: str, target: str) -> Document:
        if source == target:
            return document
        return self._versions.from_stored(self._versions.to_stored(document, source), target)


def _manager(entry: Entry) -> str:
    """Return the name of an entry's manager for messages about conflicts."""
    who = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        who += f' with subresource "{entry["subresource"]}"'
    return f"{who} using {entry['apiVersion']}" if entry["operation"] == "Update" else who


def _message(conflicts: Sequence[tuple[str, str]]) -> str:
    if len(conflicts) == 1:
        who, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    by_manager: dict[str, list[str]] = {}
    for who, path in conflicts[:MAX_CAUSES]:
        by_manager.setdefault(who, []).append(f"- {path}")
    lines = [
        line for who in sorted(by_manager) for line in (f"conflicts with {who}:", *by_manager[who])
    ]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
