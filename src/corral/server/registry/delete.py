"""Deletion: at once, after a grace period, or once the last finalizer is gone."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from lightkube.models.meta_v1 import DeleteOptions

from corral.api import grace_period
from corral.api.encoding import encode
from corral.api.errors import ApiError, BadRequest, Invalid, StoreReadError
from corral.api.go_decoder import first_fault
from corral.api.kind import Kind, at
from corral.api.object import Document
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.server.registry.lists import Selector, page_of, told
from corral.server.registry.rest import Rest, is_namespace, is_namespace_in_use, is_released
from corral.server.request import body, query
from corral.server.request.call import Call, forbidden, json_response, storage
from corral.server.strategy import object_meta
from corral.store import Record, Store, may_be_deleting

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_POLICIES = {"Background": None, "Foreground": FOREGROUND, "Orphan": ORPHAN}
_ANSWERED_AS_OBJECTS = frozenset(
    {
        *("namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates"),
        *("resourcequotas", "serviceaccounts", "services", "storageclasses.storage.k8s.io"),
    }
)
"""Kinds of Kubernetes whose deletion is answered with the object: typed clients read it so."""
_LASTING = ("default", "kube-system", "kube-public")
"""Namespaces that nobody can delete (Kubernetes' NamespaceLifecycle)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """meta/v1 DeleteOptions, from the body and the query."""

    grace_seconds: int | None = None
    policy: str = ""
    uid: str = ""
    revision: str = ""
    dry: bool = False


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Sent(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


def options(call: Call) -> Options:
    """How to delete, as the body and the query say.  Raises BadRequest and Invalid."""
    document = body.read(call) if call.request.body.strip() else {}
    return read_options(document, call.query)


def read_options(document: Any, asked: Mapping[str, str]) -> Options:
    """How to delete, as a document of DeleteOptions says, and a query where that says nothing."""
    if not isinstance(document, dict) or document.get("kind") not in (None, "", "DeleteOptions"):
        raise BadRequest("decoded object cannot be converted to DeleteOptions")
    try:
        sent = msgspec.convert(document, _Sent)
    except msgspec.ValidationError as error:
        fault = first_fault(DeleteOptions, document) or str(error)
        raise BadRequest(
            f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {fault}'
        ) from None
    if sent.propagation_policy is not None and sent.orphan_dependents is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        told = f'Invalid value: "{sent.propagation_policy}": {message}'
        raise query.bad_option("DeleteOptions", "propagationPolicy", told, "FieldValueInvalid")
    seconds = sent.grace_period_seconds
    if seconds is None:
        seconds = query.number(asked, "gracePeriodSeconds")
    _require_bounded(seconds)
    policy = sent.propagation_policy or asked.get("propagationPolicy", "")
    if not policy and (sent.orphan_dependents or query.flag(asked, "orphanDependents")):
        policy = "Orphan"
    if policy and policy not in _POLICIES:
        raise _unknown_policy(policy)
    before = sent.preconditions or _Preconditions()
    return Options(
        grace_seconds=seconds,
        policy=policy,
        uid=before.uid or "",
        revision=before.resource_version or "",
        dry=query.dry_run([asked.get("dryRun", ""), *(sent.dry_run or [])], "DeleteOptions"),
    )


def _require_bounded(seconds: int | None) -> None:
    """Raises Invalid.  Less than none is taken for none, as everywhere in Kubernetes."""
    if seconds is not None and (fault := grace_period.fault(max(seconds, 0))):
        message = f"Invalid value: {seconds}: {fault}"
        raise query.bad_option(
            "DeleteOptions", "gracePeriodSeconds", message, reason="FieldValueInvalid"
        )


def _unknown_policy(policy: str) -> Invalid:
    known = ", ".join(f'"{each}"' for each in (*_POLICIES, "nil"))
    return query.bad_option(
        "DeleteOptions",
        "propagationPolicy",
        f'Unsupported value: "{policy}": supported values: {known}',
    )


async def delete(rest: Rest, call: Call) -> Response:
    """Raises NotFound, Conflict and what ``options`` raises."""
    presenter = rest.presenter(call)
    how = options(call)
    try:
        record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    except StoreReadError:
        return await _discard(rest, call, how)
    held = await _dismissed(rest, call, record, how)
    if held is None:
        if not how.dry:
            record = await remove(rest.store, record, held)
        if call.kind.resource in _ANSWERED_AS_OBJECTS:
            return json_response(presenter.one(record))
        return json_response(encode(_success(call.kind, record.document())))
    if how.dry:
        return json_response(presenter.shown(held))
    return json_response(presenter.one(await remove(rest.store, record, held)))


async def _discard(rest: Rest, call: Call, how: Options) -> Response:
    """Let a damaged object go, whatever it held: nobody knows its finalizers.

    Who names a version of it means another one.  Raises StoreReadError then.  Kubernetes'
    AllowUnsafeMalformedObjectDeletion asks for an option besides.
    """
    if how.uid or how.revision:
        rest.store.latest(storage(call.kind), call.key)
    if not how.dry:
        await rest.store.discard(storage(call.kind), call.key)
    return json_response(encode(_success(call.kind, {"metadata": {"name": call.name, "uid": ""}})))


async def _dismissed(rest: Rest, call: Call, record: Record, how: Options) -> Document | None:
    """What ``end`` says, where reviewers let the object go.  Raises Stale, too."""
    held = end(rest, call, record, how)
    if await rest.reviewers.dismiss(call, record):
        rest.require_newest(call.kind, record.key, record)
    return held


def remove(store: Store, record: Record, held: Document | None) -> Awaitable[Record]:
    """Stage what ``end`` decided; whoever waits for it has it on disk."""
    if held is None:
        return store.delete(record.kind, record.key, record.document())
    if may_be_deleting(record) and held == record.document():  # its deletion goes on already
        return store.durable(record)
    return store.write(record.kind, record.key, held)


def end(rest: Rest, call: Call, record: Record, how: Options) -> Document | None:
    """What an object becomes that shall be deleted; None when nothing holds it back."""
    document = record.document()
    metadata = document["metadata"]
    _require(call.kind, record, metadata, how)
    if is_namespace(document) and record.key.name in _LASTING:
        raise forbidden(call.kind, call.name, "this namespace may not be deleted")
    if call.kind.begin_deletion is not None:
        call.kind.begin_deletion(document, rfc3339(rest.now()))
    if metadata.get("deletionTimestamp") and is_namespace_in_use(document):
        return document  # what is in it goes already
    _apply_policy(metadata, how.policy)
    seconds = _grace(call.kind, document, how)
    if metadata.get("deletionTimestamp"):
        if seconds < (metadata.get("deletionGracePeriodSeconds") or 0):
            _mark(document, rest.now(), seconds)
    elif seconds or metadata.get("finalizers") or is_namespace_in_use(document):
        _mark(document, rest.now(), seconds)
        if "generation" in metadata:
            metadata["generation"] += 1
    else:
        return None
    return None if is_released(document) else document


def _require(kind: Kind, record: Record, metadata: Document, how: Options) -> None:
    uid, revision = metadata["uid"], str(record.revision)
    if how.uid and how.uid != uid:
        message = _differs("UID", how.uid, uid) + "deleted and then recreated"
    elif how.revision and how.revision != revision:
        message = _differs("ResourceVersion", how.revision, revision) + "modified"
    else:
        return
    raise object_meta.kind_conflict(kind, record.key.name, message)


def _differs(what: str, asked: str, known: str) -> str:
    return (
        f"the {what} in the precondition ({asked}) does not match the {what} in record ({known}). "
        "The object might have been "
    )


def _apply_policy(metadata: Document, policy: str) -> None:
    """The garbage collector reads the policy from finalizers."""
    if not policy:
        return
    kept = [each for each in metadata.get("finalizers") or [] if each not in (ORPHAN, FOREGROUND)]
    wanted = _POLICIES[policy]
    metadata["finalizers"] = kept + ([wanted] if wanted else [])
    if not metadata["finalizers"]:
        del metadata["finalizers"]


def _grace(kind: Kind, document: Document, how: Options) -> int:
    """Seconds that the object has to end by itself; 0 for kinds that do not do such things."""
    if kind.default_grace_seconds is None:
        return 0
    final = at(document, "status", "phase") in ("Succeeded", "Failed")
    if final or not at(document, "spec", "nodeName"):
        return 0  # nothing runs that could end
    if how.grace_seconds is None:
        # Objects from before there was a bound may say anything.
        return min(kind.default_grace_seconds(document), grace_period.LONGEST_SECONDS)
    return max(how.grace_seconds, 0)


def _mark(document: Document, now: float, seconds: int) -> None:
    metadata = document["metadata"]
    metadata["deletionTimestamp"] = rfc3339(now + seconds)
    metadata["deletionGracePeriodSeconds"] = seconds
    if is_namespace(document):
        document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}


def _success(kind: Kind, gone: Document) -> Document:
    metadata = gone["metadata"]
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural}
    details["uid"] = metadata["uid"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }


async def delete_collection(rest: Rest, call: Call) -> Response:
    """Delete everything that a list with the same query names; answers what was there.

    An object that may not be deleted keeps none of the others.  The first such refusal is raised.
    Nothing is staged before all of them were decided: what is staged is waited for in any case.
    """
    presenter = rest.presenter(call)
    how = options(call)
    selector = Selector(call.kind, call.query)
    stored = storage(call.kind)
    page = await page_of(rest.store, call, selector)
    decided: list[tuple[Record, Document | None]] = []
    staged: list[Awaitable[Record]] = []
    refusals: list[ApiError] = []
    for record in page.records:
        latest = rest.store.latest(stored, record.key)
        if latest is None or not selector.matches(latest):
            continue
        try:
            decided.append((latest, await _dismissed(rest, call, latest, how)))
        except ApiError as refusal:
            refusals.append(refusal)
    for record, held in decided if not how.dry else ():
        try:
            rest.require_newest(call.kind, record.key, record)
        except ApiError as refusal:
            refusals.append(refusal)
        else:
            staged.append(remove(rest.store, record, held))
    await asyncio.gather(*staged)
    if refusals:
        raise refusals[0]
    return await told(presenter, selector, page)
