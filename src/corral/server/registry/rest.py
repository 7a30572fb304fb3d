"""The verbs on single objects, once for every kind.

Each reads the latest version, evaluates and stages without an ``await``: that is the transaction;
then it waits for the commit before it responds.  Only ``reviewers``, webhooks and policies, are
awaited in between: if an object has changed meanwhile, Stale is raised, and the request restarts.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

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
from corral.store import Objects, Record, Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

WAIT_SECONDS = 3
"""Longest wait of a read for a revision that is not committed yet."""

_CREATED_ON_UPDATE = frozenset(
    {
        *("endpoints", "events", "events.events.k8s.io", "limitranges", "services"),
        *("leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"),
        *("clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"),
        "clusterrolebindings.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
    }
)
"""Kinds of which a PUT creates missing objects (Kubernetes' AllowCreateOnUpdate)."""

_NOT_SPEC = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(frozen=True, slots=True)
class Patch:
    """A parsed patch.

    ``change`` returns the patched version of a document, which it may modify if ``members`` is
    None.  Otherwise ``members`` are the top-level members that the patch contains: all others, and
    unpatched parts of these, are shared with the original.
    """

    change: Callable[[Document], Document]
    members: Collection[str] | None = None


def _admit_all(_call: Call) -> None:
    """Admit every call."""


class Updates(Protocol):
    """Writes of objects, as subresources make them: of ``Rest``, or of another API server."""

    @property
    def store(self) -> Objects:
        """The store of the objects."""

    async def evaluate_update(
        self, call: Call, record: Record, new: Document, old: Document | None = None
    ) -> Document | None:
        """Return the document that an update stores; None if unchanged."""

    async def create_object(self, call: Call, document: Document) -> Response:
        """Create an object: defaults, admission, validation."""

    def require_newest(self, kind: Kind, key: Key, record: Record | None) -> None:
        """Check that a record is still the latest version of its object.  Raises Stale."""

    def put(self, call: Call, document: Document) -> Awaitable[object]:
        """Store what ``evaluate_update`` has returned."""


class Rest:
    """Get, create, update and patch.

    ``now`` is seconds since 1970; ``plugins`` are the built-in admission plugins, ``reviewers`` the
    webhooks and policies.  ``admit`` authorizes a call whose verb changed from update or patch to
    create; it raises Forbidden.
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
        """Get an object.  Raises NotFound, and Timeout if a requested revision does not come."""
        presenter = self.presenter(call)
        await wait_for_revision(self.store, query.revision(call.query) or 0)
        record = self.store.get(storage(call.kind), call.key)
        if record is None:
            raise not_found(call.kind, call.name)
        return json_response(presenter.one(record))

    async def create(self, call: Call) -> Response:
        """Create an object.  Raises AlreadyExists, Invalid, Forbidden and what reading raises."""
        return await self.create_object(call, validation.incoming(call, body.read(call)))

    async def create_object(self, call: Call, document: Document) -> Response:
        """Create an object that a client sent or applied: defaults, admission, validation."""
        presenter = self.presenter(call)
        dry = query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
        validation.conform(call, document)
        name = document["metadata"].get("name", "")
        validation.require_namespace(self.store, call, name)
        object_meta.clear_server_fields(document)
        _drop_status(call.kind, document)
        validation.assign_managers(call, document, None, now=rfc3339(self.now()))
        document = await self.reviewers.mutate(call, document, None)
        object_meta.set_identity(self.store, call, document, rfc3339(self.now()))
        call.name = document["metadata"]["name"]
        _drop_status(call.kind, document)
        call.kind.default_create(document)
        if (complete := self.plugins.creators.get(storage(call.kind))) is not None:
            complete(call, document, None)
        self._prepare(call, document, None)
        self._check(call, document, None)
        if await self.reviewers.validate(call, document, None):
            validation.require_namespace(self.store, call, call.name)
            self._check(call, document, None)  # allocated values may have been taken meanwhile
        object_meta.require_new(self.store, call, document)
        self._guard(call, document, None)
        self.quotas.admit(call.kind, document, None)
        if dry:
            return json_response(presenter.dry_run_result(document), status=201)
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
        if self._creates_on_update(call) and self.store.latest(stored, call.key) is None:
            object_meta.require_uid(call, sent, None)
            creation = replace(call, verb="create")
            self.admit(creation)
            return await self.create_object(creation, sent)
        record = object_meta.existing(self.store, call.kind, stored, call.key)
        object_meta.require_uid(call, sent, record)
        version = sent["metadata"].get("resourceVersion", "")
        if not call.kind.native and version in object_meta.ANY_VERSION:
            raise object_meta.resource_version_required(call)
        return await self.update_object(call, record, sent)

    @staticmethod
    def _creates_on_update(call: Call) -> bool:
        """Return whether an update creates a missing object."""
        return call.kind.resource in _CREATED_ON_UPDATE and not call.subresource

    async def patch(self, call: Call) -> Response:
        if apply.is_applied(call):
            return await apply.answer(self, call)
        patch = read_patch(call)
        record = object_meta.existing(self.store, call.kind, storage(call.kind), call.key)
        old = record.document()
        if self._keeps_spec_shared(call, patch):
            # Unpatched parts are shared between old and new: neither copied nor compared.
            base = {**old, "metadata": {**old["metadata"]}}
        else:
            base = record.document()
        new = patch.change(as_version(base, call.version, call.api_version))
        return await self.update_object(call, record, validation.incoming(call, new), old)

    def _keeps_spec_shared(self, call: Call, patch: "Patch") -> bool:
        """Return whether a patch changes nothing but metadata and status.

        False if other fields are converted, pruned, prepared or allocated on the way: in a status
        of Kubernetes' own kinds none is prepared or allocated.
        """
        stored = storage(call.kind)
        return (
            patch.members is not None
            and _NOT_SPEC.issuperset(patch.members)
            and call.kind.schemas is None
            and not (call.version.write or call.version.read or call.version.view)
            and (
                (call.kind.native and call.subresource == "status")
                or (stored not in self.plugins.allocators and stored not in self.plugins.preparers)
            )
        )

    async def update_object(
        self, call: Call, record: Record, new: Document, old: Document | None = None
    ) -> Response:
        """Update an object to a document: defaults, admission, validation.

        ``old`` is the record's document, if the caller has decoded it.
        """
        presenter = self.presenter(call)
        dry = query.dry_run([call.query.get("dryRun", "")], call.options)
        document = await self.evaluate_update(call, record, new, old)
        if document is None:
            return json_response(presenter.one(await self.store.durable(record)))
        if dry:
            return json_response(presenter.dry_run_result(document))
        return json_response(presenter.one(await self.put(call, document)))

    async def evaluate_update(
        self, call: Call, record: Record, new: Document, old: Document | None = None
    ) -> Document | None:
        """Return the document that an update stores, to be staged at once; None if unchanged.

        ``old`` is the record's document, if the caller has decoded it.  Raises Stale if the object
        changed while reviewers were awaited.
        """
        old = record.document() if old is None else old
        self.require_fit(call, new, old)
        if call.managed_fields is None and self.reviewers.mutates(call):
            self._account(call, copied(new), old)
        new = await self.reviewers.mutate(call, new, old)
        document = self.prepare_update(call, new, old)
        await self.reviewers.validate(call, document, old)
        return self.finish_update(call, record, document, old)

    def require_fit(self, call: Call, new: Document, old: Document) -> None:
        """Check that a document is of the same object, and matches its schema."""
        object_meta.require_match(call, new, old)
        validation.conform(call, new, old)

    def _account(self, call: Call, draft: Document, old: Document) -> None:
        """Update managed fields before reviewers mutate: their changes have no manager."""
        object_meta.keep_identity(draft, old)
        draft = object_meta.separate_status(call, draft, old)
        validation.assign_managers(call, draft, old, now=rfc3339(self.now()))

    def prepare_update(self, call: Call, new: Document, old: Document) -> Document:
        """Return a new document with the fields that the server sets or preserves, validated."""
        changed = object_meta.immutable_changes(call, new, old)
        object_meta.keep_identity(new, old)
        document = object_meta.separate_status(call, new, old)
        self._prepare(call, document, old)
        object_meta.check_finalizers(call, document, old)
        self._check(call, document, old, changed)
        object_meta.count_generation(call, document, old)
        return document

    def finish_update(
        self, call: Call, record: Record, document: Document, old: Document
    ) -> Document | None:
        """Return the document if it is to be stored, after guards and quotas; None if unchanged."""
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
        """Check that a record is still the latest version of its object.  Raises Stale."""
        if self.store.latest(storage(kind), key) is not record:
            raise object_meta.stale(kind, key.name)

    def put(self, call: Call, document: Document) -> asyncio.Future[Record]:
        """Stage a changed object, or its deletion if its last finalizer was removed."""
        stored = storage(call.kind)
        if is_released(document):
            return self.store.delete(stored, call.key, document)
        return self.store.write(stored, call.key, document)


def _drop_status(kind: Kind, document: Document) -> None:
    """Remove the status of an object to be created, unless its kind allows one."""
    if kind.status and not kind.status_on_create:
        document.pop("status", None)


async def wait_for_revision(store: Store, revision: int) -> None:
    """Wait for a revision that may be committed soon.  Raises Timeout."""
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
    """Return whether an object is being deleted and nothing blocks that any more."""
    metadata = document["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not is_namespace_in_use(document)
    )


def is_namespace(document: Document) -> bool:
    """Return whether it is a core/v1 Namespace; custom kinds may have the same name."""
    return (document["apiVersion"], document["kind"]) == ("v1", "Namespace")


def is_namespace_in_use(document: Document) -> bool:
    return is_namespace(document) and bool(at(document, "spec", "finalizers"))


def read_patch(call: Call) -> Patch:
    """Parse the patch in a call's body.  Raises BadRequest, UnsupportedMedia."""
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
    body.check_duplicates(call, patch)
    if media == JSON_PATCH:
        unknown_faults = [f'unknown field "{path}"' for path in unknown_members(patch)]
        call.duplicate_faults = [
            f"json patch {fault}" for fault in (*call.duplicate_faults, *unknown_faults)
        ]
        return Patch(lambda document: json_patch(document, patch))
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: it must be a JSON object")
    if media == MERGE_PATCH:
        return Patch(lambda document: merge_patch(document, patch), patch.keys())
    # Kubernetes decodes the result as the path's type: Ansible sends the scaled object's kind with
    # a patch of a Scale.
    members_patched = {
        name: value for name, value in patch.items() if name not in ("apiVersion", "kind")
    }
    schema = structural(call.kind, call.version.name)
    return Patch(
        lambda document: strategic_merge(document, members_patched, schema), members_patched.keys()
    )
