"""Applying a configuration: one document laid over another, and the account afterwards."""

from collections.abc import Iterable, Sequence

from corral.api.apply.field_sets import (
    LEAF,
    Fields,
    difference,
    intersection,
    paths,
    union,
    union_of,
)
from corral.api.apply.managers import Entry, Writer, ordered
from corral.api.apply.versions import Terms
from corral.api.errors import MOST_CAUSES, Cause, Conflict, Details, limited
from corral.api.object import Document


class ConflictingManagers(Conflict):
    """Others set fields that are applied to something else.

    ``conflicts`` are their entries, each with the fields that it is about.
    """

    def __init__(self, conflicts: Sequence[tuple[Entry, Fields]]) -> None:
        self.conflicts = conflicts
        told = [(_named(entry), path) for entry, fields in conflicts for path in paths(fields)]
        causes = [Cause(path, f"conflict with {who}", "FieldManagerConflict") for who, path in told]
        super().__init__(_told(told), details=Details(causes=limited(causes)))

    def forgive(self, fields: Fields) -> None:
        """Raises what is left of the conflicts without those that are about some paths, if any."""
        left = [(entry, difference(theirs, fields)) for entry, theirs in self.conflicts]
        if left := [(entry, theirs) for entry, theirs in left if theirs]:
            raise ConflictingManagers(left)


def apply(
    terms: Terms,
    live: Document,
    configuration: Document,
    entries: Iterable[Entry],
    writer: Writer,
    *,
    force: bool,
    now: str,
) -> tuple[Document, list[Entry]]:
    """What an object becomes when somebody applies a configuration, and its account then.

    Documents are in the form of the writer's version, and the configuration fits its type.  Raises
    ConflictingManagers unless ``force`` takes fields away from others.
    """
    form = terms.form(writer.api_version) or ""
    typed = terms.typed(form)
    others = [entry for entry in entries if not writer.wrote(entry)]
    last = next((entry for entry in entries if writer.wrote(entry)), None)
    applied = typed.applied(configuration)
    document = typed.merged(live, configuration)
    if last is not None:
        account = [*others, writer.entry(applied, None)]
        if terms.form(last["apiVersion"]) != form or difference(last["fieldsV1"], applied):
            pruned = _Pruning(terms, form, account).prune(document, last)
            document = typed.merged(pruned, configuration)  # with objects that are applied bare
    others = _yielding(terms, form, live, document, others, force=force)
    time = now if document != live else (last or {}).get("time")
    mine = [writer.entry(applied, time)] if applied else []
    return document, ordered([*others, *mine])


def _yielding(
    terms: Terms, form: str, live: Document, document: Document, others: list[Entry], *, force: bool
) -> list[Entry]:
    """The entries of others without what changes; of that they must not have set anything."""
    compare = terms.comparing(terms.stored(live, form), terms.stored(document, form))
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
    """Takes away what a writer applied before and not any more.

    ``account`` is the one that follows, with what the writer applies now.
    """

    def __init__(self, terms: Terms, form: str, account: Iterable[Entry]) -> None:
        self._terms = terms
        self._form = form
        managed: dict[str, list[Fields]] = {}
        for entry in account:
            of = terms.form(entry["apiVersion"])
            if of is not None:
                managed.setdefault(of, []).append(entry["fieldsV1"])
        self._managed = {of: union_of(fields) for of, fields in managed.items()}

    def prune(self, merged: Document, last: Entry) -> Document:
        """The document without the fields of the writer's last entry that nobody has now."""
        was = self._terms.form(last["apiVersion"])
        if was is None:
            return merged
        whole = self._turned(merged, self._form, was)
        typed = self._terms.typed(was)
        every = typed.named(typed.applied(whole))
        before = typed.named(last["fieldsV1"])
        pruned = typed.without(whole, before, bare=True)
        for form in sorted(self._managed, key=lambda form: form != was):
            pruned = self._with_managed(whole, pruned, was, form, every if form == was else None)
        gone = difference(every, typed.named(typed.applied(pruned)))
        pruned = typed.without(whole, intersection(gone, before))
        return self._turned(pruned, was, self._form)

    def _with_managed(
        self, whole: Document, pruned: Document, was: str, form: str, every: Fields | None
    ) -> Document:
        """A pruned document with what is managed in the terms of a form put back.

        Objects of which nothing is left stay, for what nobody manages in them.  ``every`` field of
        the whole in this form is worked out unless it is known.
        """
        typed = self._terms.typed(form)
        whole, pruned = self._turned(whole, was, form), self._turned(pruned, was, form)
        kept = union(typed.named(typed.applied(pruned)), typed.named(self._managed.get(form, LEAF)))
        if every is None:
            every = typed.named(typed.applied(whole))
        left = typed.without(whole, difference(every, kept), bare=True)
        return self._turned(left, form, was)

    def _turned(self, document: Document, source: str, target: str) -> Document:
        if source == target:
            return document
        return self._terms.told(self._terms.stored(document, source), target)


def _named(entry: Entry) -> str:
    """A writer as messages about conflicts name it."""
    who = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        who += f' with subresource "{entry["subresource"]}"'
    return f"{who} using {entry['apiVersion']}" if entry["operation"] == "Update" else who


def _told(conflicts: Sequence[tuple[str, str]]) -> str:
    if len(conflicts) == 1:
        who, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    by_manager: dict[str, list[str]] = {}
    for who, path in conflicts[:MOST_CAUSES]:
        by_manager.setdefault(who, []).append(f"- {path}")
    lines = [
        line for who in sorted(by_manager) for line in (f"conflicts with {who}:", *by_manager[who])
    ]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
