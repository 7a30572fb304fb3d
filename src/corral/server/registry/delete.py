"""Deletion: immediate, after a grace period, or after the last finalizer is removed."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from lightkube.models.meta_v1 import DeleteOptions

from corral.api import grace_period
from corral.api.encoding import encode
from corral.api.errors import ApiError, BadRequest, Invalid, StoreReadError
from corral.api.go_decoder import first_error
from corral.api.kind import Kind, at
from corral.api.object import Document
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.server.registry.lists import Selector, list_response, select_page
from corral.server.registry.rest import Rest, is_namespace, is_namespace_in_use, is_released
from corral.server.request import body, query
from corral.server.request.call import Call, forbidden, json_response, storage
from corral.server.strategy import object_meta
from corral.store import Record, Store, may_be_deleting

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_POLICIES = {"Background": None, "Foreground": FOREGROUND, "Orphan": ORPHAN}
_RETURN_OBJECT = frozenset(
    {
        *("namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates"),
        *("resourcequotas", "serviceaccounts", "services", "storageclasses.storage.k8s.io"),
    }
)
"""Kubernetes' kinds whose DELETE returns the object: typed clients decode it so."""
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
"""Namespaces that cannot be deleted (Kubernetes' NamespaceLifecycle)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """meta/v1 DeleteOptions, from the body and the query."""

    grace_seconds: int | None = None
    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


def delete_options(call: Call) -> Options:
    """Return the options in a call's body and query.  Raises BadRequest and Invalid."""
    document = body.read(call) if call.request.body.strip() else {}
    return parse_options(document, call.query)


def parse_options(document: Any, parameters: Mapping[str, str]) -> Options:
    """Return the options in a DeleteOptions document, else in the query parameters."""
    if not isinstance(document, dict) or document.get("kind") not in (None, "", "DeleteOptions"):
        raise BadRequest("decoded object cannot be converted to DeleteOptions")
    try:
        parsed = msgspec.convert(document, _DeleteOptions)
    except msgspec.ValidationError as error:
        fault = first_error(DeleteOptions, document) or str(error)
        raise BadRequest(
            f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {fault}'
        ) from None
    if parsed.propagation_policy is not None and parsed.orphan_dependents is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        message = f'Invalid value: "{parsed.propagation_policy}": {message}'
        raise query.bad_option("DeleteOptions", "propagationPolicy", message, "FieldValueInvalid")
    seconds = parsed.grace_period_seconds
    if seconds is None:
        seconds = query.number(parameters, "gracePeriodSeconds")
    _check_grace_period(seconds)
    policy = parsed.propagation_policy or parameters.get("propagationPolicy", "")
    if not policy and (parsed.orphan_dependents or query.flag(parameters, "orphanDependents")):
        policy = "Orphan"
    if policy and policy not in _POLICIES:
        raise _unknown_policy(policy)
    preconditions = parsed.preconditions or _Preconditions()
    return Options(
        grace_seconds=seconds,
        policy=policy,
        uid=preconditions.uid or "",
        resource_version=preconditions.resource_version or "",
        dry_run=query.dry_run(
            [parameters.get("dryRun", ""), *(parsed.dry_run or [])], "DeleteOptions"
        ),
    )


def _check_grace_period(seconds: int | None) -> None:
    """Check a grace period; negative ones count as 0, as in Kubernetes.  Raises Invalid."""
    if seconds is not None and (fault := grace_period.fault(max(seconds, 0))):
        message = f"Invalid value: {seconds}: {fault}"
        raise query.bad_option(
            "DeleteOptions", "gracePeriodSeconds", message, reason="FieldValueInvalid"
        )


def _unknown_policy(policy: str) -> Invalid:
    supported = ", ".join(f'"{each}"' for each in (*_POLICIES, "nil"))
    return query.bad_option(
        "DeleteOptions",
        "propagationPolicy",
        f'Unsupported value: "{policy}": supported values: {supported}',
    )


async def delete(rest: Rest, call: Call) -> Response:
    """Delete an object.  Raises NotFound, Conflict and what ``delete_options`` raises."""
    presenter = rest.presenter(call)
    options = delete_options(call)
    try:
        record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    except StoreReadError:
        return await _discard(rest, call, options)
    remaining = await _admit_deletion(rest, call, record, options)
    if remaining is None:
        if not options.dry_run:
            record = await stage_deletion(rest.store, record, remaining)
        if call.kind.resource in _RETURN_OBJECT:
            return json_response(presenter.one(record))
        return json_response(encode(_success_status(call.kind, record.document())))
    if options.dry_run:
        return json_response(presenter.dry_run_result(remaining))
    return json_response(presenter.one(await stage_deletion(rest.store, record, remaining)))


async def _discard(rest: Rest, call: Call, options: Options) -> Response:
    """Delete a damaged object, whose finalizers are unknown.

    With preconditions, which cannot be checked, StoreReadError is raised.  Unlike with Kubernetes'
    AllowUnsafeMalformedObjectDeletion, no option is required.
    """
    if options.uid or options.resource_version:
        rest.store.latest(storage(call.kind), call.key)
    if not options.dry_run:
        await rest.store.discard(storage(call.kind), call.key)
    return json_response(
        encode(_success_status(call.kind, {"metadata": {"name": call.name, "uid": ""}}))
    )


async def _admit_deletion(
    rest: Rest, call: Call, record: Record, options: Options
) -> Document | None:
    """Return the result of ``plan_deletion``, if reviewers admit it.  Raises Stale, too."""
    remaining = plan_deletion(rest, call, record, options)
    if await rest.reviewers.admit_deletion(call, record):
        rest.require_newest(call.kind, record.key, record)
    return remaining


def stage_deletion(store: Store, record: Record, remaining: Document | None) -> Awaitable[Record]:
    """Stage the result of ``plan_deletion``; await it for the commit."""
    if remaining is None:
        return store.delete(record.kind, record.key, record.document())
    if may_be_deleting(record) and remaining == record.document():  # already being deleted
        return store.durable(record)
    return store.write(record.kind, record.key, remaining)


def plan_deletion(rest: Rest, call: Call, record: Record, options: Options) -> Document | None:
    """Return an object with its deletion marked; None if it can be deleted at once."""
    document = record.document()
    metadata = document["metadata"]
    _check_preconditions(call.kind, record, metadata, options)
    if is_namespace(document) and record.key.name in _PROTECTED_NAMESPACES:
        raise forbidden(call.kind, call.name, "this namespace may not be deleted")
    if call.kind.begin_deletion is not None:
        call.kind.begin_deletion(document, rfc3339(rest.now()))
    if metadata.get("deletionTimestamp") and is_namespace_in_use(document):
        return document  # its content is being deleted already
    _apply_policy(metadata, options.policy)
    seconds = _grace_seconds(call.kind, document, options)
    if metadata.get("deletionTimestamp"):
        if seconds < (metadata.get("deletionGracePeriodSeconds") or 0):
            _mark_deleting(document, rest.now(), seconds)
    elif seconds or metadata.get("finalizers") or is_namespace_in_use(document):
        _mark_deleting(document, rest.now(), seconds)
        if "generation" in metadata:
            metadata["generation"] += 1
    else:
        return None
    return None if is_released(document) else document


def _check_preconditions(kind: Kind, record: Record, metadata: Document, options: Options) -> None:
    uid, resource_version = metadata["uid"], str(record.revision)
    if options.uid and options.uid != uid:
        message = _precondition_message("UID", options.uid, uid) + "deleted and then recreated"
    elif options.resource_version and options.resource_version != resource_version:
        message = (
            _precondition_message("ResourceVersion", options.resource_version, resource_version)
            + "modified"
        )
    else:
        return
    raise object_meta.kind_conflict(kind, record.key.name, message)


def _precondition_message(field: str, expected: str, actual: str) -> str:
    return (
        f"the {field} in the precondition ({expected}) does not match the {field} in record "
        f"({actual}). The object might have been "
    )


def _apply_policy(metadata: Document, policy: str) -> None:
    """Set the finalizer of a propagation policy, from which the garbage collector reads it."""
    if not policy:
        return
    finalizers = [
        each for each in metadata.get("finalizers") or [] if each not in (ORPHAN, FOREGROUND)
    ]
    finalizer = _POLICIES[policy]
    metadata["finalizers"] = finalizers + ([finalizer] if finalizer else [])
    if not metadata["finalizers"]:
        del metadata["finalizers"]


def _grace_seconds(kind: Kind, document: Document, options: Options) -> int:
    """Return the seconds that an object has to terminate; 0 for kinds without a grace period."""
    if kind.default_grace_seconds is None:
        return 0
    final = at(document, "status", "phase") in ("Succeeded", "Failed")
    if final or not at(document, "spec", "nodeName"):
        return 0  # nothing runs that would have to terminate
    if options.grace_seconds is None:
        # Objects stored by versions without a bound may exceed it.
        return min(kind.default_grace_seconds(document), grace_period.LONGEST_SECONDS)
    return max(options.grace_seconds, 0)


def _mark_deleting(document: Document, now: float, seconds: int) -> None:
    metadata = document["metadata"]
    metadata["deletionTimestamp"] = rfc3339(now + seconds)
    metadata["deletionGracePeriodSeconds"] = seconds
    if is_namespace(document):
        document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}


def _success_status(kind: Kind, deleted: Document) -> Document:
    metadata = deleted["metadata"]
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
    """Delete all objects that a list with the same query returns; respond with that list.

    An error for one object stops none of the others; the first error is raised at the end.  Nothing
    is staged before all deletions are planned: staged ones have to be awaited in any case.
    """
    presenter = rest.presenter(call)
    options = delete_options(call)
    selector = Selector(call.kind, call.query)
    stored = storage(call.kind)
    page = await select_page(rest.store, call, selector)
    planned: list[tuple[Record, Document | None]] = []
    staged: list[Awaitable[Record]] = []
    errors: list[ApiError] = []
    for record in page.records:
        latest = rest.store.latest(stored, record.key)
        if latest is None or not selector.matches(latest):
            continue
        try:
            planned.append((latest, await _admit_deletion(rest, call, latest, options)))
        except ApiError as error:
            errors.append(error)
    for record, remaining in planned if not options.dry_run else ():
        try:
            rest.require_newest(call.kind, record.key, record)
        except ApiError as error:
            errors.append(error)
        else:
            staged.append(stage_deletion(rest.store, record, remaining))
    await asyncio.gather(*staged)
    if errors:
        raise errors[0]
    return await list_response(presenter, selector, page)
