"""Server-side apply: PATCH with an apply configuration.

A manager applies all fields that it has an opinion on, each time; fields that it no longer sends
are removed, and fields that others set to other values are conflicts.  Missing objects are created.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from corral.api.apply import last_applied
from corral.api.apply.apply import ConflictingManagers, apply
from corral.api.apply.managers import BEFORE_APPLY, Entry, Writer, updated
from corral.api.apply.versions import versions_of
from corral.api.encoding import copied, decode_any
from corral.api.errors import BadRequest
from corral.api.kind import Scale, at
from corral.api.kinds.kubevirt.v1alpha2 import hint
from corral.api.object import Document
from corral.api.request import Response
from corral.api.schema import schema_for
from corral.api.time import rfc3339
from corral.server.request import body, query
from corral.server.request.call import Call, storage
from corral.server.response.presenter import as_version
from corral.server.strategy import managed_fields, object_meta, validation
from corral.store import Record

if TYPE_CHECKING:
    from corral.server.registry.rest import Rest

APPLY_PATCH: Final = "application/apply-patch+yaml"
_LARGE_BYTES: Final = 64 * 1024
"""Larger ones are applied in a thread: it takes tens of milliseconds and more."""
_OF_A_STATUS: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})
"""Metadata that a configuration of a status may have; labels, too, for Kubernetes' own kinds."""


def is_applied(call: Call) -> bool:
    """Return whether the body of a PATCH is an apply configuration."""
    return body.media_type(call) == APPLY_PATCH


async def answer(rest: "Rest", call: Call) -> Response:
    """Apply to an object, or create it.

    Raises Conflict, BadRequest, Invalid, and what a create or an update raises.
    """
    writer = _writer(call)
    stored = storage(call.kind)
    record = rest.store.latest(stored, call.key)
    if record is None and call.subresource:
        object_meta.existing(rest.store, call.kind, stored, call.key)
    work = partial(_apply_to, call, record, writer, rfc3339(rest.now()))
    if len(call.request.body) + (record.size if record else 0) < _LARGE_BYTES:
        document = work()
    else:
        document = await asyncio.to_thread(work)
        rest.require_newest(call.kind, call.key, record)
    applied = validation.incoming(call, document)
    object_meta.require_name(call, applied)
    if record is not None:
        return await rest.update_object(call, record, applied)
    creation = replace(call, verb="create")
    rest.admit(creation)
    return await rest.create_object(creation, applied)


def _apply_to(call: Call, record: Record | None, writer: Writer, now: str) -> Document:
    """Return the object with the configuration applied; set the call's managed fields.

    May run in a thread: nothing else reads or changes the call meanwhile.
    """
    configuration = _read(call, call.api_version)
    uid = configuration["metadata"].get("uid")
    if record is None and uid:
        why = (
            f"uid mismatch: the provided object specified uid {uid}, "
            "and no existing object was found"
        )
        raise object_meta.conflict(call.kind, call.name, why)
    live: Document = {}
    if record is not None:
        live = as_version(record.document(), call.version, call.api_version)
    _name(call, configuration)
    sent = copied(configuration)
    _prepare(call, configuration)
    document, call.managed_fields = _run_apply(call, live, configuration, writer, now)
    if writer.manager == last_applied.MANAGER and not call.subresource:
        last_applied.renew(document, live, sent)
    applied: Document = copied(document)
    return applied


def apply_scale(rest: "Rest", call: Call, old: Document, shown: Document, paths: Scale) -> Document:
    """Return the Scale that results from applying one to an object."""
    writer = _writer(call)
    configuration = _read(call, shown["apiVersion"])
    count: Any = at(configuration, "spec", "replicas")
    applied: Any = count
    for step in reversed(paths.spec_replicas):
        applied = {step: applied}
    applied = {"metadata": {}} | (applied if count is not None else {})
    document, call.managed_fields = _run_apply(call, old, applied, writer, rfc3339(rest.now()))
    return {
        "metadata": configuration["metadata"],
        "spec": {"replicas": at(document, *paths.spec_replicas)},
    }


def _writer(call: Call) -> Writer:
    if not call.query.get("fieldManager"):
        message = "Required value: is required for apply patch"
        raise query.bad_option("PatchOptions", "fieldManager", message, "FieldValueRequired")
    return managed_fields.writer(call, "Apply")


def _read(call: Call, api_version: str) -> Document:
    try:
        configuration = _json(call.request.body) or body.read_yaml(call)
    except BadRequest as error:
        raise BadRequest(f"error decoding YAML: {error.message}") from None
    if call.duplicate_faults and query.field_validation(call.query, call.options) == "Strict":
        raise BadRequest(f"error strict decoding YAML: {call.duplicate_faults[0]}")
    metadata = configuration["metadata"] = configuration.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadRequest("error decoding YAML: metadata is not an object")
    if metadata.pop("managedFields", None) is not None:
        raise BadRequest("metadata.managedFields must be nil")
    sent = configuration.get("apiVersion")
    if sent != api_version:
        raise BadRequest(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {sent or ''}, expected: {api_version}"
        )
    return configuration


def _json(text: bytes) -> Document | None:
    """Return the object in a body that is JSON, which parses much faster than YAML; else None.

    None also for duplicate keys and syntax errors, which the YAML parser reports.
    """
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        value = decode_any(text)
    except BadRequest:
        return None
    return value if isinstance(value, dict) and not body.duplicate_faults(text, value) else None


def _name(call: Call, configuration: Document) -> None:
    """Set the object's name and namespace in the configuration."""
    metadata = configuration["metadata"]
    metadata.setdefault("name", call.name)
    if call.kind.namespaced:
        metadata.setdefault("namespace", call.namespace)


def _prepare(call: Call, configuration: Document) -> None:
    """Remove the fields that this endpoint does not change from a configuration.

    Raises BadRequest if it is not of the kind's type.
    """
    metadata = configuration["metadata"]
    kind = configuration.get("kind") or ""
    sent = f"{call.kind.group}/{call.version.name}, Kind={kind}"
    if call.version.read is not None and call.version.write is None:
        call.version.read(configuration)  # validates; the result is not used
    if kind != call.kind.name:
        raise _type_error(call, sent, f"no corresponding type for {sent}")
    versions = versions_of(call.kind)
    faults = versions.typed(versions.form(call.api_version) or "").faults(configuration)
    if faults:
        faults = [f"{fault}{hint(call.kind, fault.partition(': ')[0])}" for fault in faults]
        message = faults[0] if len(faults) == 1 else "\n  ".join(("errors:", *faults)) + "\n"
        raise _type_error(call, sent, message)
    # Null fields are dropped: stored objects have none.
    schema_for(call.kind, call.version.name).prune(configuration)
    if call.subresource in call.kind.status_subresources:
        allowed = _OF_A_STATUS | ({"labels", "annotations"} if call.kind.native else set())
        _retain(metadata, allowed)
        _retain(configuration, {"apiVersion", "kind", "metadata", "status"})
    elif call.kind.status:
        configuration.pop("status", None)


def _type_error(call: Call, sent: str, why: str) -> BadRequest:
    where = f"{call.namespace}/{call.name}"
    return BadRequest(f"failed to create typed patch object ({where}; {sent}): {why}")


def _retain(document: Document, fields: frozenset[str] | set[str]) -> None:
    for field in [field for field in document if field not in fields]:
        del document[field]


def _run_apply(
    call: Call, live: Document, configuration: Document, writer: Writer, now: str
) -> tuple[Document, list[Entry]]:
    """Return the applied object, and its managed fields."""
    versions = versions_of(call.kind)
    form = versions.form(writer.api_version) or ""
    entries = at(live, "metadata", "managedFields") or []
    if live and not entries:
        before = Writer(BEFORE_APPLY, "Update", writer.api_version)
        entries = updated([], before, versions.comparer(None, versions.to_stored(live, form)), now)
    force = query.flag(call.query, "force")
    try:
        document, account = apply(
            versions, live, configuration, entries, writer, force=force, now=now
        )
    except ConflictingManagers as conflict:
        if writer.manager != last_applied.MANAGER:
            raise
        schema = schema_for(call.kind, call.version.name)
        conflict.forgive(
            last_applied.fields(versions.typed(form), schema, live, writer.api_version)
        )
        document, account = apply(
            versions, live, configuration, entries, writer, force=True, now=now
        )
    return document, account
