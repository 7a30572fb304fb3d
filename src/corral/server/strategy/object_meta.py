"""Metadata that the server sets, keeps and counts: name, uid, generation; their preconditions."""

import random

from corral.api.encoding import same
from corral.api.errors import AlreadyExists, BadRequest, Cause, Conflict, Details, Invalid
from corral.api.kind import Kind, at
from corral.api.kinds.causes import invalid
from corral.api.names import SUFFIX_LENGTH, SUFFIX_LETTERS
from corral.api.object import Document, Key
from corral.api.uid import random_uuid
from corral.server.request.call import Call, not_found, storage
from corral.store import Objects, Record, Store

ANY_VERSION = ("", "0")
"""Resource versions that are no precondition."""
_LONGEST_BASE = 63 - SUFFIX_LENGTH

_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
)
"""Metadata that clients cannot set: what they send of it is dropped on create, kept on update."""

_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_KEPT = ("namespace", "name", "generateName", *_SERVER_FIELDS[:-1])
"""Metadata that no update changes; ``managedFields`` have rules of their own."""

_UNCOUNTED = frozenset(
    {
        *("limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes"),
        *("resourcequotas", "services", "leases.coordination.k8s.io"),
        *("apiservices.apiregistration.k8s.io", "certificatesigningrequests.certificates.k8s.io"),
    }
)
_COUNTED = frozenset(
    {
        *("podtemplates", "endpointslices.discovery.k8s.io"),
        "priorityclasses.scheduling.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
"""Native kinds with a spec but no generation; kinds without a spec that have a generation."""


class Stale(Conflict):
    """A conflict with a write during a call of a webhook: the request restarts from the newest."""


def clear_server_fields(document: Document) -> None:
    """Remove from a document to be created the metadata that only the server sets.

    A resource version stays: ``require_new`` refuses it, after all other checks.
    """
    metadata = document["metadata"]
    if metadata.get("resourceVersion") in ANY_VERSION:
        del metadata["resourceVersion"]
    for field in _SERVER_FIELDS:
        if field in metadata:
            del metadata[field]


def require_new(store: Store, call: Call, document: Document) -> None:
    """Refuse to create an object that exists or has a resourceVersion: Kubernetes' last check."""
    if "resourceVersion" in document["metadata"]:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    if store.latest(storage(call.kind), call.key) is not None:
        raise already_exists(store, call)


def set_identity(store: Store, call: Call, document: Document, now: str) -> None:
    """Set a new object's name, uid, creationTimestamp and first generation."""
    metadata = document["metadata"]
    base = metadata.get("generateName", "")
    if not metadata.get("name"):
        if not base:
            required = Cause(
                "metadata.name",
                "Required value: name or generateName is required",
                "FieldValueRequired",
            )
            raise call.kind.invalid("", [required])
        metadata["name"] = _generated(store, call, str(base))
    metadata["uid"] = random_uuid()
    metadata["creationTimestamp"] = now
    if _has_generation(call.kind, document):
        metadata["generation"] = 1


def _has_generation(kind: Kind, document: Document) -> bool:
    """Return whether an object has a generation, by the kinds that Kubernetes leaves out."""
    if not kind.native or kind.resource in _COUNTED:
        return True
    return "spec" in document and kind.resource not in _UNCOUNTED


def _generated(store: Store, call: Call, base: str) -> str:
    """Return a free name that begins with ``base``."""
    while True:
        suffix = "".join(random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))  # noqa: S311 - no secret
        name = base[:_LONGEST_BASE] + suffix
        if store.latest(storage(call.kind), Key(call.namespace, name)) is None:
            return name


def require_match(call: Call, document: Document, old: Document) -> None:
    """Refuse a document of another object, or of an older version of this one."""
    require_name(call, document)
    current = old["metadata"]["resourceVersion"]
    if document["metadata"].get("resourceVersion", "") not in (*ANY_VERSION, current):
        raise conflict(call.kind, call.name, _MODIFIED)


def require_uid(call: Call, document: Document, record: Record | None) -> None:
    """Refuse an update whose uid, a precondition, is another object's of the same name.

    Without a ``record`` any uid is refused.
    """
    uid = at(document, "metadata", "uid")
    current = at(record.document(), "metadata", "uid") if uid and record is not None else ""
    if uid and uid != current:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
        raise conflict(call.kind, call.name, why)


def require_name(call: Call, document: Document) -> None:
    """Refuse a document whose name is not that of the path."""
    name = document["metadata"].setdefault("name", call.name)
    if name != call.name:
        raise BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
        )


def resource_version_required(call: Call) -> Invalid:
    """Return the refusal of an update without a resourceVersion."""
    kind, why = call.kind, "must be specified for an update"
    cause = invalid("metadata.resourceVersion", 0, why)
    message = f'{kind.resource} "{call.name}" is invalid: {cause.field}: {cause.message}'
    details = Details(name=call.name, group=kind.group, kind=kind.plural, causes=[cause])
    return Invalid(message, details=details)


def already_exists(store: Store, call: Call) -> AlreadyExists:
    message = f'{call.kind.resource} "{call.name}" already exists'
    record = store.latest(storage(call.kind), call.key)
    if record is not None and at(record.document(), "metadata", "deletionTimestamp"):
        message = f"object is being deleted: {message}"
    details = Details(name=call.name, group=call.kind.group, kind=call.kind.plural)
    return AlreadyExists(message, details=details)


def stale(kind: Kind, name: str) -> Stale:
    error = conflict(kind, name, _MODIFIED)
    return Stale(error.message, details=error.details)


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        details=Details(name=name, group=kind.group, kind=kind.plural),
    )


def kind_conflict(kind: Kind, name: str, why: str) -> Conflict:
    """Return the refusal of a deletion, which Kubernetes words by the kind and not the resource."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        details=Details(name=name, group=kind.group, kind=kind.name),
    )


def immutable_changes(call: Call, document: Document, old: Document) -> list[Cause]:
    """Return the causes of a client's changes of immutable metadata.

    Fields that it leaves out are kept.  Its creationTimestamp, and the fields of a deletion in
    progress, are ignored: Kubernetes restores them before it compares (rest.BeforeUpdate).
    A status update of a custom resource ignores metadata altogether.
    """
    if call.subresource in call.kind.status_subresources and not call.kind.native:
        return []
    metadata, current = document["metadata"], old["metadata"]
    fields = ["uid"]
    if not call.subresource and "deletionTimestamp" not in current:
        fields += ["deletionTimestamp", "deletionGracePeriodSeconds"]
    return [
        invalid(f"metadata.{field}", metadata[field], "field is immutable")
        for field in fields
        if metadata.get(field) not in (None, "", current.get(field))
    ]


def keep_identity(document: Document, old: Document) -> None:
    """Restore the metadata that no update changes."""
    metadata, current = document["metadata"], old["metadata"]
    for field in _KEPT:
        if field in current:
            metadata[field] = current[field]
        else:
            metadata.pop(field, None)
    metadata["resourceVersion"] = current["resourceVersion"]


def separate_status(call: Call, document: Document, old: Document) -> Document:
    """Keep the status in an update of an object, and all but the status in one of its status."""
    if call.subresource in call.kind.status_subresources:
        merged = dict(old)
        metadata = merged["metadata"] = dict(old["metadata"])
        if call.kind.native:  # status updates of Kubernetes' own kinds may label, too
            for field in ("labels", "annotations"):
                _copy_field(metadata, document["metadata"], field)
        _copy_field(merged, document, "status")
        return merged
    if call.kind.status:
        _copy_field(document, old, "status")
    return document


def _copy_field(target: Document, source: Document, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def check_finalizers(call: Call, document: Document, old: Document) -> None:
    """Refuse new finalizers on an object that is being deleted.  Raises Invalid."""
    if not at(old, "metadata", "deletionTimestamp"):
        return
    current = old["metadata"].get("finalizers") or []
    added = [each for each in document["metadata"].get("finalizers") or [] if each not in current]
    if added:
        shown = ", ".join(f'"{each}"' for each in added)
        message = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{shown}}}"
        )
        cause = Cause("metadata.finalizers", message, "FieldValueForbidden")
        raise call.kind.invalid(call.name, [cause])


def count_generation(call: Call, document: Document, old: Document) -> None:
    """Increment the generation for a change of the desired state: of all but metadata and status.

    The status counts for kinds without a status subresource, as Kubernetes has it.  A change of the
    apiVersion alone does not count.
    """
    metadata = document["metadata"]
    if "generation" not in metadata:
        return
    apart = {"apiVersion", "kind", "metadata"} | ({"status"} if call.kind.status else set())
    if any(document.get(field) != old.get(field) for field in {*document, *old} - apart):
        metadata["generation"] += 1


def unchanged(document: Document, old: Document) -> bool:
    """Return whether a write changes nothing but times in managedFields."""
    kept = old["metadata"].get("managedFields")
    given = document["metadata"].get("managedFields")
    if given != kept and _without_times(given) == _without_times(kept):
        document = {**document, "metadata": {**document["metadata"], "managedFields": kept}}
    return document == old and same(document, old)


def _without_times(account: list[Document] | None) -> list[Document]:
    return [{**entry, "time": None} for entry in account or []]


def existing(store: Objects, kind: Kind, stored: str, key: Key) -> Record:
    """Return the newest version of an object.  Raises NotFound."""
    record = store.latest(stored, key)
    if record is None:
        raise not_found(kind, key.name)
    return record
