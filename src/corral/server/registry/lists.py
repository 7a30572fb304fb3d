"""Lists: selected, cut into pages, at the revision that was asked for."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from corral.aio import OBJECTS_A_TURN, in_turns
from corral.api.encoding import decode_as
from corral.api.errors import BadRequest, Gone
from corral.api.kind import Kind, at
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.api.selectors import FieldSelector, FieldTerm, LabelSelector, parse_fields, parse_labels
from corral.server.registry.rest import Rest, reach
from corral.server.request import query
from corral.server.request.call import Call, json_response, storage
from corral.server.response.presenter import Presenter
from corral.store import Record, RecordRange, Store


class Continue(msgspec.Struct, rename={"version": "v", "revision": "rv"}):
    """A continue token: the list goes on after the key ``start``, at ``revision``.

    Revision -1 is the newest: what follows need not fit what came before.
    """

    version: str
    revision: int
    start: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def after(cls, key: Key, revision: int) -> "Continue":
        return cls("meta.k8s.io/v1", revision, f"{key.namespace}/{key.name}\0")

    @classmethod
    def read(cls, token: str) -> "Continue":
        """Raises BadRequest for what no server gave."""
        try:
            text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            found = decode_as(text, cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise BadRequest(f"continue key is not valid: {error}") from None
        if found.version != "meta.k8s.io/v1" or "/" not in found.start:
            raise BadRequest("continue key is not valid: it was not given by this server")
        return found

    @property
    def key(self) -> Key:
        namespace, _, name = self.start.rstrip("\0").partition("/")
        return Key(namespace, name)


class Selector:
    """Which objects of a kind a list or a watch is about."""

    def __init__(self, kind: Kind, asked: Mapping[str, str]) -> None:
        self.labels: LabelSelector = parse_labels(asked.get("labelSelector", ""))
        self.fields: FieldSelector = parse_fields(asked.get("fieldSelector", ""))
        self._readers: dict[str, Callable[[Document], str]] = {
            "metadata.name": lambda document: str(at(document, "metadata", "name") or ""),
            "metadata.namespace": lambda document: str(at(document, "metadata", "namespace") or ""),
            **kind.selectable,
        }
        self.fields.check(self._readers)
        self.name = self.fields.exact("metadata.name")

    def only(self, name: str) -> None:
        """Narrow the selection to one object."""
        self.fields = FieldSelector((*self.fields.terms, FieldTerm("metadata.name", name)))
        self.name = name

    def __bool__(self) -> bool:
        return bool(self.labels) or bool(self.fields)

    def matches(self, record: Record) -> bool:
        if self.name is not None and record.key.name != self.name:
            return False
        if self.labels and not self.labels.matches(record.labels):
            return False
        return not self.fields or self._fields_match(record)

    def _fields_match(self, record: Record) -> bool:
        known = record.fields
        if known is None or any(term.field not in known for term in self.fields.terms):
            document = record.document()
            found = {term.field: self._readers[term.field](document) for term in self.fields.terms}
            known = record.fields = _one({**(known or {}), **found})
        return self.fields.matches(known)


def _one(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Findings that are kept once: all pods of a node have the same."""
    return _kept(tuple(fields.items()))


@lru_cache(maxsize=1024)
def _kept(fields: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(fields)


class Page(NamedTuple):
    """One answer to a list, and where it ends.

    ``remaining`` is how many come after it; where there is a selector it is 1 if any do.
    """

    records: Sequence[Record]
    revision: int
    remaining: int


async def list_objects(rest: Rest, call: Call) -> Response:
    """Raises BadRequest, Gone and Timeout."""
    presenter = rest.presenter(call)
    selector = Selector(call.kind, call.query)
    call.warnings += _missing(rest.store, call)
    return await told(presenter, selector, await page_of(rest.store, call, selector))


def _missing(store: Store, call: Call) -> list[str]:
    """What a list warns of: damaged objects that are not in it."""
    kind = storage(call.kind)
    return [
        f"{each} is damaged on disk and not listed"
        for each in store.damaged
        if each.kind == kind and call.namespace in ("", each.key.namespace)
    ]


async def told(presenter: Presenter, selector: Selector, page: Page) -> Response:
    """The answer that a page is, with what is needed to ask for the next one."""
    metadata: dict[str, object] = {"resourceVersion": str(page.revision)}
    if page.remaining:
        metadata["continue"] = Continue.after(page.records[-1].key, page.revision).encode()
        if not selector:
            metadata["remainingItemCount"] = page.remaining
    return json_response(await presenter.many(page.records, metadata))


async def page_of(store: Store, call: Call, selector: Selector) -> Page:
    """The objects that are asked for.  Raises BadRequest, Invalid, Gone and Timeout."""
    limit = query.number(call.query, "limit") or 0
    query.number(call.query, "timeoutSeconds")  # refused where it is none; no list takes that long
    _check_options(call)
    token = call.query.get("continue", "")
    start = None
    if token:
        revision, start = _resume(store, call, token)
    else:
        revision = await _revision(store, call, limit)
    stretch = _stretch(store, call, selector, revision, start)
    shown = revision if revision > 0 else store.revision
    if not selector:
        records = list(islice(stretch.records, limit or None))
        return Page(records, shown, stretch.count - len(records))
    wanted = limit + 1 if limit else stretch.count  # one more tells whether there are any
    records = await _selected(selector, stretch, wanted)
    more = bool(limit) and len(records) > limit
    return Page(records[: limit or None], shown, int(more))


async def _selected(selector: Selector, stretch: RecordRange, wanted: int) -> list[Record]:
    """The first objects that match; while many are looked at, others have their turn."""
    if stretch.count <= OBJECTS_A_TURN:
        return list(islice(filter(selector.matches, stretch.records), wanted))
    present = list(stretch.records)  # what changes meanwhile is not seen
    selected: list[Record] = []
    async for some in in_turns(present, OBJECTS_A_TURN):
        selected += filter(selector.matches, some)
        if len(selected) >= wanted:
            break
    return selected[:wanted]


def newest(store: Store, call: Call, selector: Selector) -> list[Record]:
    """The present objects among which a selector chooses; one name is looked up, not searched."""
    kind = storage(call.kind)
    if selector.name and (call.namespace or not call.kind.namespaced):
        record = store.get(kind, Key(call.namespace, selector.name))
        return [] if record is None else [record]
    return store.objects(kind, call.namespace)


def _stretch(
    store: Store, call: Call, selector: Selector, revision: int, start: Key | None
) -> RecordRange:
    """The objects from which a page is taken.  Raises Gone."""
    if revision <= 0 and selector.name:
        records = newest(store, call, selector)
        left = [record for record in records if start is None or record.key > start]
        return RecordRange(iter(left), len(left))
    kind = storage(call.kind)
    try:
        return store.record_range(kind, call.namespace, after=start, revision=max(revision, 0))
    except Gone:
        raise _expired(start) from None


def _resume(store: Store, call: Call, token: str) -> tuple[int, Key]:
    if call.query.get("resourceVersion", "") not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    found = Continue.read(token)
    if found.revision > store.revision:
        raise BadRequest("continue key is not valid: it is of a revision that is yet to come")
    return found.revision, found.key


def _expired(start: Key | None) -> Gone:
    if start is None:
        return Gone("The resourceVersion for the provided list is too old.")
    return _Expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token of this answer "
        "to get the rest of the results as they are now, which need not fit what came before.",
        again=Continue.after(start, -1).encode(),
    )


@dataclass(eq=False)
class _Expired(Gone):
    """A page that cannot be made any more, with the token by which to go on all the same."""

    again: str = ""

    def status(self) -> Document:
        return {**super().status(), "metadata": {"continue": self.again}}


async def _revision(store: Store, call: Call, limit: int) -> int:
    """The revision to list at; 0 for the newest."""
    revision = query.revision(call.query)
    match = call.query.get("resourceVersionMatch", "")
    if not revision:
        return 0
    await reach(store, revision)
    exact = match == "Exact" or (not match and limit > 0)
    return revision if exact else 0


def _check_options(call: Call) -> None:
    """Raises Invalid for options that make no sense together."""
    match = call.query.get("resourceVersionMatch", "")
    revision = query.revision(call.query)
    if match and match not in ("Exact", "NotOlderThan"):
        raise query.bad_option(
            "ListOptions",
            "resourceVersionMatch",
            f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"',
        )
    if call.query.get("sendInitialEvents"):
        raise _forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents")
    if match and revision is None:
        raise _forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and call.query.get("continue"):
        raise _forbidden("resourceVersionMatch is forbidden when continue is provided")
    if match == "Exact" and revision == 0:
        raise _forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def _forbidden(message: str, field: str = "resourceVersionMatch") -> Exception:
    return query.bad_option("ListOptions", field, f"Forbidden: {message}", "FieldValueForbidden")
