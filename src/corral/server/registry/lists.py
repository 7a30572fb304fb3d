"""Lists: selected and paged objects, at a requested revision."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from corral.aio import OBJECTS_PER_TURN, in_batches
from corral.api.encoding import decode_as
from corral.api.errors import BadRequest, Gone
from corral.api.kind import Kind, at
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.api.selectors import FieldSelector, FieldTerm, LabelSelector, parse_fields, parse_labels
from corral.server.registry.rest import Rest, wait_for_revision
from corral.server.request import query
from corral.server.request.call import Call, json_response, storage
from corral.server.response.presenter import Presenter
from corral.store import Record, RecordRange, Store


class Continue(msgspec.Struct, rename={"version": "v", "revision": "rv"}):
    """A continue token: the list continues after the key ``start``, at ``revision``.

    Revision -1 is the latest: the rest may be inconsistent with earlier pages.
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
        """Decode a token.  Raises BadRequest."""
        try:
            text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            parsed = decode_as(text, cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise BadRequest(f"continue key is not valid: {error}") from None
        if parsed.version != "meta.k8s.io/v1" or "/" not in parsed.start:
            raise BadRequest("continue key is not valid: it was not given by this server")
        return parsed

    @property
    def key(self) -> Key:
        namespace, _, name = self.start.rstrip("\0").partition("/")
        return Key(namespace, name)


class Selector:
    """The label and field selectors of a list or a watch."""

    def __init__(self, kind: Kind, parameters: Mapping[str, str]) -> None:
        self.labels: LabelSelector = parse_labels(parameters.get("labelSelector", ""))
        self.fields: FieldSelector = parse_fields(parameters.get("fieldSelector", ""))
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
        cached = record.fields
        if cached is None or any(term.field not in cached for term in self.fields.terms):
            document = record.document()
            parsed = {term.field: self._readers[term.field](document) for term in self.fields.terms}
            cached = record.fields = _interned({**(cached or {}), **parsed})
        return self.fields.matches(cached)


def _interned(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return a shared copy of field values: all pods of a node have the same."""
    return _interned_items(tuple(fields.items()))


@lru_cache(maxsize=1024)
def _interned_items(fields: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(fields)


class Page(NamedTuple):
    """A page of a list.

    ``remaining`` is the count of objects after it; with a selector, 1 if there are any.
    """

    records: Sequence[Record]
    revision: int
    remaining: int


async def list_objects(rest: Rest, call: Call) -> Response:
    """List the objects of a kind.  Raises BadRequest, Gone and Timeout."""
    presenter = rest.presenter(call)
    selector = Selector(call.kind, call.query)
    call.warnings += _damage_warnings(rest.store, call)
    return await list_response(presenter, selector, await select_page(rest.store, call, selector))


def _damage_warnings(store: Store, call: Call) -> list[str]:
    """Return warnings about damaged objects that are not listed."""
    kind = storage(call.kind)
    return [
        f"{each} is damaged on disk and not listed"
        for each in store.damaged
        if each.kind == kind and call.namespace in ("", each.key.namespace)
    ]


async def list_response(presenter: Presenter, selector: Selector, page: Page) -> Response:
    """Return the response with a page, and the continue token of the next one."""
    metadata: dict[str, object] = {"resourceVersion": str(page.revision)}
    if page.remaining:
        metadata["continue"] = Continue.after(page.records[-1].key, page.revision).encode()
        if not selector:
            metadata["remainingItemCount"] = page.remaining
    return json_response(await presenter.many(page.records, metadata))


async def select_page(store: Store, call: Call, selector: Selector) -> Page:
    """Return the page that a call requests.  Raises BadRequest, Invalid, Gone and Timeout."""
    limit = query.number(call.query, "limit") or 0
    query.number(call.query, "timeoutSeconds")  # only validated: no list takes that long
    _check_options(call)
    token = call.query.get("continue", "")
    start = None
    if token:
        revision, start = _resume(store, call, token)
    else:
        revision = await _revision(store, call, limit)
    record_range = _range_of(store, call, selector, revision, start)
    listed_revision = revision if revision > 0 else store.revision
    if not selector:
        records = list(islice(record_range.records, limit or None))
        return Page(records, listed_revision, record_range.count - len(records))
    limit_count = (
        limit + 1 if limit else record_range.count
    )  # one more, to find out whether any remain
    records = await _selected(selector, record_range, limit_count)
    more = bool(limit) and len(records) > limit
    return Page(records[: limit or None], listed_revision, int(more))


async def _selected(
    selector: Selector, record_range: RecordRange, limit_count: int
) -> list[Record]:
    """Return the first ``limit_count`` objects that match; yields to the loop between chunks."""
    if record_range.count <= OBJECTS_PER_TURN:
        return list(islice(filter(selector.matches, record_range.records), limit_count))
    records_now = list(record_range.records)  # a snapshot: changes meanwhile are not seen
    selected: list[Record] = []
    async for chunk in in_batches(records_now, OBJECTS_PER_TURN):
        selected += filter(selector.matches, chunk)
        if len(selected) >= limit_count:
            break
    return selected[:limit_count]


def candidates(store: Store, call: Call, selector: Selector) -> list[Record]:
    """Return the current objects that a selector may match: one by name, if it requires a name."""
    kind = storage(call.kind)
    if selector.name and (call.namespace or not call.kind.namespaced):
        record = store.get(kind, Key(call.namespace, selector.name))
        return [] if record is None else [record]
    return store.objects(kind, call.namespace)


def _range_of(
    store: Store, call: Call, selector: Selector, revision: int, start: Key | None
) -> RecordRange:
    """Return the objects from which a page is selected.  Raises Gone."""
    if revision <= 0 and selector.name:
        records = candidates(store, call, selector)
        remaining_records = [record for record in records if start is None or record.key > start]
        return RecordRange(iter(remaining_records), len(remaining_records))
    kind = storage(call.kind)
    try:
        return store.record_range(kind, call.namespace, after=start, revision=max(revision, 0))
    except Gone:
        raise _expired(start) from None


def _resume(store: Store, call: Call, token: str) -> tuple[int, Key]:
    if call.query.get("resourceVersion", "") not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    parsed = Continue.read(token)
    if parsed.revision > store.revision:
        raise BadRequest("continue key is not valid: it is of a future revision")
    return parsed.revision, parsed.key


def _expired(start: Key | None) -> Gone:
    if start is None:
        return Gone("The resourceVersion for the provided list is too old.")
    return _Expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token of this "
        "response to get the rest of the results as they are now, which may be inconsistent with "
        "earlier pages.",
        continue_token=Continue.after(start, -1).encode(),
    )


@dataclass(eq=False)
class _Expired(Gone):
    """An expired continue token, with the token of an inconsistent continuation."""

    continue_token: str = ""

    def status(self) -> Document:
        return {**super().status(), "metadata": {"continue": self.continue_token}}


async def _revision(store: Store, call: Call, limit: int) -> int:
    """Return the revision to list at; 0 for the latest."""
    revision = query.revision(call.query)
    match = call.query.get("resourceVersionMatch", "")
    if not revision:
        return 0
    await wait_for_revision(store, revision)
    exact = match == "Exact" or (not match and limit > 0)
    return revision if exact else 0


def _check_options(call: Call) -> None:
    """Check the combination of list options.  Raises Invalid."""
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
