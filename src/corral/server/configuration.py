"""PATCH with a configuration: server-side apply.

Who applies says all that they want of an object, and again each time; what they do not say any more
goes, and what others set differently is a conflict.  An object that is not there is made.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from corral.api import yaml
from corral.api.apply import last_applied
from corral.api.apply.configuration import ConflictingManagers, apply
from corral.api.apply.managers import BEFORE_APPLY, Entry, Writer, booked
from corral.api.apply.terms import terms_of
from corral.api.encoding import copied
from corral.api.errors import BadRequest
from corral.api.kind import Scale, at
from corral.api.object import Document
from corral.api.schema import schema_for
from corral.api.time import rfc3339
from corral.api.wire import Response
from corral.server import admission, body, identity, managed, query
from corral.server.call import Call, storage
from corral.server.present import as_version

if TYPE_CHECKING:
    from corral.server.rest import Rest

APPLY_PATCH: Final = "application/apply-patch+yaml"
_OF_A_STATUS: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})
"""Metadata in the configuration of a status; those of Kubernetes' own may label, too."""


def is_applied(call: Call) -> bool:
    """Whether the body of a PATCH is a configuration."""
    return body.media_type(call) == APPLY_PATCH


async def answer(rest: "Rest", call: Call) -> Response:
    """Apply to an object, or make it.

    Raises Conflict, BadRequest, Invalid, and what a creation or an update raises.
    """
    who = _writer(call)
    configuration = _read(call, call.api_version)
    stored = storage(call.kind)
    record = rest.store.latest(stored, call.key)
    if record is None and call.subresource:
        identity.existing(rest.store, call.kind, stored, call.key)
    live: Document = {}
    if record is not None:
        live = as_version(record.document(), call.version, call.api_version)
    _prepare(call, configuration)
    document, call.account = _applied(call, live, configuration, who, rfc3339(rest.now()))
    wanted = admission.incoming(call, copied(document))
    if record is not None:
        return await rest.change(call, record, wanted)
    creation = replace(call, verb="create")
    rest.admit(creation)
    return await rest.make(creation, wanted)


def scale(rest: "Rest", call: Call, old: Document, shown: Document, paths: Scale) -> Document:
    """The Scale that somebody wants who applies one to an object."""
    who = _writer(call)
    configuration = _read(call, shown["apiVersion"])
    count: Any = at(configuration, "spec", "replicas")
    wanted: Any = count
    for step in reversed(paths.spec_replicas):
        wanted = {step: wanted}
    wanted = {"metadata": {}} | (wanted if count is not None else {})
    document, call.account = _applied(call, old, wanted, who, rfc3339(rest.now()))
    return {
        "metadata": configuration["metadata"],
        "spec": {"replicas": at(document, *paths.spec_replicas)},
    }


def _writer(call: Call) -> Writer:
    if not call.query.get("fieldManager"):
        message = "Required value: is required for apply patch"
        raise query.bad_option("PatchOptions", "fieldManager", message, "FieldValueRequired")
    return managed.writer(call, "Apply")


def _read(call: Call, api_version: str) -> Document:
    try:
        configuration = yaml.load(call.request.body)
    except BadRequest as error:
        raise BadRequest(f"error decoding YAML: {error.message}") from None
    metadata = configuration["metadata"] = configuration.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadRequest("error decoding YAML: metadata is not an object")
    if metadata.pop("managedFields", None) is not None:
        raise BadRequest("metadata.managedFields must be nil")
    said = configuration.get("apiVersion")
    if said != api_version:
        raise BadRequest(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {said or ''}, expected: {api_version}"
        )
    return configuration


def _prepare(call: Call, configuration: Document) -> None:
    """Name the object in the configuration, and leave out what is not changed at this address.

    Raises BadRequest for what is not of the kind's type.
    """
    metadata = configuration["metadata"]
    metadata.setdefault("name", call.name)
    if call.kind.namespaced:
        metadata.setdefault("namespace", call.namespace)
    terms = terms_of(call.kind)
    faults = terms.typed(terms.form(call.api_version) or "").faults(configuration)
    if faults:
        told = faults[0] if len(faults) == 1 else "\n  ".join(("errors:", *faults)) + "\n"
        raise BadRequest(
            f"failed to create typed patch object ({call.namespace}/{call.name}; "
            f"{call.api_version}, Kind={call.kind.name}): {told}"
        )
    # A field that is null is none, to this server: what is stored has no such fields.
    schema_for(call.kind, call.version.name).prune(configuration)
    if call.subresource in call.kind.doors:
        kept = _OF_A_STATUS | ({"labels", "annotations"} if call.kind.native else set())
        _keep(metadata, kept)
        _keep(configuration, {"apiVersion", "kind", "metadata", "status"})
    elif call.kind.status:
        configuration.pop("status", None)


def _keep(document: Document, fields: frozenset[str] | set[str]) -> None:
    for field in [field for field in document if field not in fields]:
        del document[field]


def _applied(
    call: Call, live: Document, configuration: Document, who: Writer, now: str
) -> tuple[Document, list[Entry]]:
    """What the object becomes, and its account."""
    terms = terms_of(call.kind)
    form = terms.form(who.api_version) or ""
    entries = at(live, "metadata", "managedFields") or []
    if live and not entries:
        before = Writer(BEFORE_APPLY, "Update", who.api_version)
        entries = booked([], before, terms.comparing(None, terms.stored(live, form)), now)
    force = query.flag(call.query, "force")
    try:
        document, account = apply(terms, live, configuration, entries, who, force=force, now=now)
    except ConflictingManagers as conflict:
        if who.manager != last_applied.MANAGER:
            raise
        schema = schema_for(call.kind, call.version.name)
        conflict.forgive(last_applied.fields(terms.typed(form), schema, live, who.api_version))
        document, account = apply(terms, live, configuration, entries, who, force=True, now=now)
    if who.manager == last_applied.MANAGER and not call.subresource:
        last_applied.renew(document, live, configuration)
    return document, account
