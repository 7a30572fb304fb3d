"""The verbs on single objects, once for every kind.

Each reads the newest version, decides and stages without anything between, so that nobody comes in
between; then it waits until what it answers is on disk.  Only where ``reviewers`` outside have a
say does time pass meanwhile: then Stale is raised where an object changed, and the request starts
anew.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from corral.api.encoding import copied, decode_any
from corral.api.errors import BadRequest, Cause, Details, Timeout, UnsupportedMedia
from corral.api.kind import Kind, at
from corral.api.object import Document, Key
from corral.api.patch.json import json_patch, unknown_members
from corral.api.patch.merge import merge_patch
from corral.api.patch.strategic import strategic_merge
from corral.api.request import Response
from corral.api.schema import structural
from corral.api.time import rfc3339
from corral.server.admission.dynamic import Reviewers
from corral.server.admission.plugins import Plugins
from corral.server.admission.resource_quota import QuotaAdmission
from corral.server.authn.service_accounts import Accounts
from corral.server.registry import apply
from corral.server.request import body, query
from corral.server.request.call import Call, json_response, not_found, storage
from corral.server.response.presenter import Presenter, as_version
from corral.server.strategy import object_meta, validation
from corral.store import Record, Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

WAIT_SECONDS = 3
"""How long a read waits for a revision that is not there yet."""

_MADE_BY_UPDATE = frozenset(
    {
        *("endpoints", "events", "events.events.k8s.io", "limitranges", "services"),
        *("leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"),
        *("clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"),
        "clusterrolebindings.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
    }
)
"""Kinds of which a PUT makes what is not there (Kubernetes' AllowCreateOnUpdate)."""

_BESIDE_SPEC = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(frozen=True, slots=True)
class Patch:
    """What a PATCH asks for.

    ``change`` makes the wanted version of the newest, which may be changed by that if ``members``
    is None.  Otherwise these are the document's members that differ: all others, and whatever of
    these is not spoken of, are shared.
    """

    change: Callable[[Document], Document]
    members: Collection[str] | None = None


def _admit_all(_call: Call) -> None:
    """Refuse nobody."""


class Rest:
    """Get, create, update and patch.

    ``now`` is seconds since 1970; ``plugins`` are the server's own admission, ``reviewers`` those
    outside who have a say in what is stored.  ``admit`` refuses who may not make the call at all,
    and is asked where it turns out to be another than it seemed.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float] = time.time,
        *,
        plugins: Plugins | None = None,
        accounts: Accounts | None = None,
        reviewers: Reviewers | None = None,
        admit: Callable[[Call], None] = _admit_all,
    ) -> None:
        self.store = store
        self.reviewers = reviewers or Reviewers()
        self.plugins = plugins or Plugins()
        self.admit = admit
        self.now = now
        self.accounts = accounts or Accounts(store, now=now)
        self.quotas = QuotaAdmission(store, now)

    def presenter(self, call: Call) -> Presenter:
        return Presenter(call, self.now)

    async def get(self, call: Call) -> Response:
        """Raises NotFound, and Timeout where a revision is asked for that does not come."""
        presenter = self.presenter(call)
        await reach(self.store, query.revision(call.query) or 0)
        record = self.store.get(storage(call.kind), call.key)
        if record is None:
            raise not_found(call.kind, call.name)
        return json_response(presenter.one(record))

    async def create(self, call: Call) -> Response:
        """Raises AlreadyExists, Invalid, Forbidden and whatever ``body.read`` raises."""
        return await self.make(call, validation.incoming(call, body.read(call)))

    async def make(self, call: Call, document: Document) -> Response:
        """Create what a client sent or applied, with all that belongs to a creation."""
        presenter = self.presenter(call)
        dry = query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
        validation.conform(call, document)
        name = document["metadata"].get("name", "")
        validation.require_namespace(self.store, call, name)
        object_meta.disown(document)
        _leave_status(call.kind, document)
        validation.account(call, document, None, now=rfc3339(self.now()))
        document = await self.reviewers.mutate(call, document, None)
        object_meta.identify(self.store, call, document, rfc3339(self.now()))
        call.name = document["metadata"]["name"]
        _leave_status(call.kind, document)
        call.kind.default_create(document)
        self._prepare(call, document, None)
        self._check(call, document, None)
        if await self.reviewers.validate(call, document, None):
            validation.require_namespace(self.store, call, call.name)
            self._check(call, document, None)  # what was free may have been taken meanwhile
        object_meta.require_new(self.store, call, document)
        self._guard(call, document, None)
        self.quotas.admit(call.kind, document, None)
        if dry:
            return json_response(presenter.shown(document), status=201)
        record = await self.store.write(storage(call.kind), call.key, document)
        return json_response(presenter.one(record), status=201)

    def _check(
        self,
        call: Call,
        document: Document,
        old: Document | None,
        changed: Iterable[Cause] = (),
    ) -> None:
        allocate = self.plugins.allocators.get(storage(call.kind))
        now = rfc3339(self.now())
        validation.check(call, document, old, allocate, changed=changed, now=now)

    async def update(self, call: Call) -> Response:
        sent = validation.incoming(call, body.read(call))
        object_meta.require_name(call, sent)
        stored = storage(call.kind)
        if self._makes(call) and self.store.latest(stored, call.key) is None:
            object_meta.require_uid(call, sent, None)
            creation = replace(call, verb="create")
            self.admit(creation)
            return await self.make(creation, sent)
        record = object_meta.existing(self.store, call.kind, stored, call.key)
        object_meta.require_uid(call, sent, record)
        version = sent["metadata"].get("resourceVersion", "")
        if not call.kind.native and version in object_meta.ANY_VERSION:
            raise object_meta.needs_revision(call)
        return await self.change(call, record, sent)

    @staticmethod
    def _makes(call: Call) -> bool:
        """Whether an update makes what is not there."""
        return call.kind.resource in _MADE_BY_UPDATE and not call.subresource

    async def patch(self, call: Call) -> Response:
        if apply.is_applied(call):
            return await apply.answer(self, call)
        patch = read_patch(call)
        record = object_meta.existing(self.store, call.kind, storage(call.kind), call.key)
        old = record.document()
        if self._leaves_spec(call, patch):
            # What is not touched is the same object in both: it is neither copied nor compared.
            base = {**old, "metadata": {**old["metadata"]}}
        else:
            base = record.document()
        wanted = patch.change(as_version(base, call.version, call.api_version))
        return await self.change(call, record, validation.incoming(call, wanted), old)

    def _leaves_spec(self, call: Call, patch: "Patch") -> bool:
        """Whether all but an object's metadata and status is the same before and after a patch.

        Not where something else of it is converted, pruned or allocated on the way.
        """
        stored = storage(call.kind)
        return (
            patch.members is not None
            and _BESIDE_SPEC.issuperset(patch.members)
            and call.kind.schemas is None
            and not (call.version.write or call.version.read or call.version.view)
            and stored not in self.plugins.allocators
            and stored not in self.plugins.preparers
        )

    async def change(
        self, call: Call, record: Record, wanted: Document, old: Document | None = None
    ) -> Response:
        """Put a wanted document in the place of a record, with all that belongs to an update.

        ``old`` is the record's document, where somebody has read it.
        """
        presenter = self.presenter(call)
        dry = query.dry_run([call.query.get("dryRun", "")], call.options)
        document = await self.updated(call, record, wanted, old)
        if document is None:
            return json_response(presenter.one(await self.store.durable(record)))
        if dry:
            return json_response(presenter.shown(document))
        return json_response(presenter.one(await self.put(call, document)))

    async def updated(
        self, call: Call, record: Record, wanted: Document, old: Document | None = None
    ) -> Document | None:
        """What an update makes of a record, to be staged at once; None where it changes nothing.

        ``old`` is the record's document, where somebody has read it.  Raises Stale where the object
        changed while reviewers were asked.
        """
        old = record.document() if old is None else old
        self.require_fit(call, wanted, old)
        if call.account is None and self.reviewers.mutates(call):
            self._account(call, copied(wanted), old)
        wanted = await self.reviewers.mutate(call, wanted, old)
        document = self.prepared(call, wanted, old)
        await self.reviewers.validate(call, document, old)
        return self.settled(call, record, document, old)

    def require_fit(self, call: Call, wanted: Document, old: Document) -> None:
        """Refuse a document that is about something else, or that does not fit its schema."""
        object_meta.require_match(call, wanted, old)
        validation.conform(call, wanted, old)

    def _account(self, call: Call, draft: Document, old: Document) -> None:
        """Book what is wanted before reviewers change it: their changes are nobody's."""
        object_meta.keep_identity(draft, old)
        draft = object_meta.separate_status(call, draft, old)
        validation.account(call, draft, old, now=rfc3339(self.now()))

    def prepared(self, call: Call, wanted: Document, old: Document) -> Document:
        """A wanted document with all that the server gives, keeps and requires."""
        changed = object_meta.changes(call, wanted, old)
        object_meta.keep_identity(wanted, old)
        document = object_meta.separate_status(call, wanted, old)
        self._prepare(call, document, old)
        object_meta.check_finalizers(call, document, old)
        self._check(call, document, old, changed)
        object_meta.count_generation(call, document, old)
        return document

    def settled(
        self, call: Call, record: Record, document: Document, old: Document
    ) -> Document | None:
        """The document, where it is to be stored and has room; None where it changes nothing."""
        self.require_newest(call.kind, record.key, record)
        if object_meta.unchanged(document, old):
            return None
        self._guard(call, document, old)
        if call.subresource != "status":
            self.quotas.admit(call.kind, document, old)
        return document

    def _prepare(self, call: Call, document: Document, old: Document | None) -> None:
        prepare = self.plugins.preparers.get(storage(call.kind))
        if prepare is not None:
            prepare(call, document, old)

    def _guard(self, call: Call, document: Document, old: Document | None) -> None:
        guard = self.plugins.guards.get(storage(call.kind))
        if guard is not None:
            guard(call, document, old)

    def require_newest(self, kind: Kind, key: Key, record: Record | None) -> None:
        """Raises Stale where something was decided by a version that is not the newest any more."""
        if self.store.latest(storage(kind), key) is not record:
            raise object_meta.stale(kind, key.name)

    async def put(self, call: Call, document: Document) -> Record:
        """Store a changed object; one whose deletion waited for its last finalizer is gone."""
        stored = storage(call.kind)
        if is_released(document):
            return await self.store.delete(stored, call.key, document)
        return await self.store.write(stored, call.key, document)


def _leave_status(kind: Kind, document: Document) -> None:
    """Take the status from an object that is to be created, unless its maker may tell it."""
    if kind.status and not kind.status_on_create:
        document.pop("status", None)


async def reach(store: Store, revision: int) -> None:
    """Wait a little for a revision that may be on its way.  Raises Timeout."""
    if revision <= store.revision:
        return
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await store.wait_for_revision(revision)
    except TimeoutError:
        message = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
        cause = Cause("", "Too large resource version", "ResourceVersionTooLarge")
        raise Timeout(message, details=Details(causes=[cause], retry_after_seconds=1)) from None


def is_released(document: Document) -> bool:
    """Whether nothing holds an object back that is to be deleted."""
    metadata = document["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not is_namespace_in_use(document)
    )


def is_namespace(document: Document) -> bool:
    """Whether it is one of Kubernetes' own: a definition may call its kind so, too."""
    return (document["apiVersion"], document["kind"]) == ("v1", "Namespace")


def is_namespace_in_use(document: Document) -> bool:
    return is_namespace(document) and bool(at(document, "spec", "finalizers"))


def read_patch(call: Call) -> Patch:
    """The patch that a body says.  Raises BadRequest, UnsupportedMedia."""
    media = body.media_type(call)
    accepted = [JSON_PATCH, MERGE_PATCH] + ([STRATEGIC_PATCH] if call.kind.native else [])
    accepted.append(apply.APPLY_PATCH)
    if media not in accepted:
        raise UnsupportedMedia(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted)
        )
    if query.flag(call.query, "force"):
        message = "Forbidden: may not be specified for non-apply patch"
        raise query.bad_option(call.options, "force", message, "FieldValueForbidden")
    if "force" in call.query:
        message = "Forbidden: may not be specified for non-apply patch"
        raise query.bad_option("PatchOptions", "force", message, "FieldValueForbidden")
    patch = decode_any(call.request.body)
    body.note_repeated(call, patch)
    if media == JSON_PATCH:
        unknown = [f'unknown field "{path}"' for path in unknown_members(patch)]
        call.repeated = [f"json patch {fault}" for fault in (*call.repeated, *unknown)]
        return Patch(lambda document: json_patch(document, patch))
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: it must be a JSON object")
    if media == MERGE_PATCH:
        return Patch(lambda document: merge_patch(document, patch), patch.keys())
    # Kubernetes reads the outcome by the path's type: Ansible calls a Scale by what is scaled.
    said = {name: value for name, value in patch.items() if name not in ("apiVersion", "kind")}
    schema = structural(call.kind, call.version.name)
    return Patch(lambda document: strategic_merge(document, said, schema), said.keys())
