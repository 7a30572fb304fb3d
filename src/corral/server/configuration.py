"""PATCH with a configuration: server-side apply.

Who applies says all that they want of an object, and again each time; what they do not say any more
goes, and what others set differently is a conflict.  An object that is not there is made.
"""

from typing import TYPE_CHECKING, Final

from corral.api import yaml
from corral.api.apply.configuration import apply
from corral.api.apply.managers import BEFORE_APPLY, Entry, Writer, booked
from corral.api.apply.terms import terms_of
from corral.api.encoding import copied
from corral.api.errors import BadRequest
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.api.wire import Response
from corral.server import admission, body, identity, managed, query
from corral.server.call import Call, storage
from corral.server.present import as_version

if TYPE_CHECKING:
    from corral.server.rest import Rest

APPLY_PATCH: Final = "application/apply-patch+yaml"


def is_applied(call: Call) -> bool:
    """Whether the body of a PATCH is a configuration."""
    return body.media_type(call) == APPLY_PATCH


async def answer(rest: "Rest", call: Call) -> Response:
    """Raises Conflict, BadRequest, Invalid, and what a creation or an update raises."""
    who = _writer(call)
    configuration = _read(call)
    stored = storage(call.kind)
    record = rest.store.latest(stored, call.key)
    if record is None and call.subresource:
        identity.existing(rest.store, call.kind, stored, call.key)
    live: Document = {}
    if record is not None:
        live = as_version(record.document(), call.version, call.api_version)
    _check(call, configuration)
    now = rfc3339(rest.now())
    document, call.account = _applied(call, live, configuration, who, now)
    wanted = admission.incoming(call, copied(document))
    if record is None:
        return await rest.make(call, wanted)
    return await rest.change(call, record, wanted)


def _writer(call: Call) -> Writer:
    if not call.query.get("fieldManager"):
        message = "Required value: is required for apply patch"
        raise query.bad_option("PatchOptions", "fieldManager", message, "FieldValueRequired")
    return managed.writer(call, "Apply")


def _read(call: Call) -> Document:
    try:
        configuration = yaml.load(call.request.body)
    except BadRequest as error:
        raise BadRequest(f"error decoding YAML: {error.message}") from None
    metadata = configuration.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest("error decoding YAML: metadata is not an object")
    if "managedFields" in metadata and metadata["managedFields"] is not None:
        raise BadRequest("metadata.managedFields must be nil")
    said = configuration.get("apiVersion")
    if said != call.api_version:
        raise BadRequest(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {said or ''}, expected: {call.api_version}"
        )
    metadata.setdefault("name", call.name)
    if call.kind.namespaced:
        metadata.setdefault("namespace", call.namespace)
    _keep_relevant(call, configuration)
    return configuration


def _keep_relevant(call: Call, configuration: Document) -> None:
    """Leave out what this address does not change: the status, or all but the status."""
    if call.subresource != "status":
        if call.kind.status:
            configuration.pop("status", None)
        return
    metadata = configuration["metadata"]
    kept = {"name", "namespace", "uid", "resourceVersion"}
    if call.kind.native:
        kept |= {"labels", "annotations"}
    for field in [field for field in metadata if field not in kept]:
        del metadata[field]
    for field in configuration.keys() - {"apiVersion", "kind", "metadata", "status"}:
        del configuration[field]


def _check(call: Call, configuration: Document) -> None:
    terms = terms_of(call.kind)
    faults = terms.typed(terms.form(call.api_version) or "").faults(configuration)
    if not faults:
        return
    told = (
        faults[0] if len(faults) == 1 else "errors:\n" + "".join(f"  {each}\n" for each in faults)
    )
    raise BadRequest(
        f"failed to create typed patch object ({call.namespace}/{call.name}; {call.api_version}, "
        f"Kind={call.kind.name}): {told}"
    )


def _applied(
    call: Call, live: Document, configuration: Document, who: Writer, now: str
) -> tuple[Document, list[Entry]]:
    terms = terms_of(call.kind)
    entries = (live.get("metadata") or {}).get("managedFields", [])
    if live and not entries:
        before = Writer(BEFORE_APPLY, "Update", who.api_version)
        stored = terms.stored(live, terms.form(who.api_version) or "")
        entries = booked([], before, terms.comparing(None, stored), now)
    force = query.flag(call.query, "force")
    return apply(terms, live, configuration, entries, who, force=force, now=now)
