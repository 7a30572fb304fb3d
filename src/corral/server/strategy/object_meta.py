"""Who an object is: what of its metadata the server gives, keeps and counts."""

import random

from corral.api.encoding import same
from corral.api.errors import AlreadyExists, BadRequest, Cause, Conflict, Details, Invalid
from corral.api.kind import Kind, at
from corral.api.kinds.causes import invalid
from corral.api.names import SUFFIX_LENGTH, SUFFIX_LETTERS
from corral.api.object import Document, Key
from corral.api.uid import random_uuid
from corral.server.request.call import Call, not_found, storage
from corral.store import Record, Store

ANY_VERSION = ("", "0")
"""Resource versions by which a client says that it knows none."""
_LONGEST_BASE = 63 - SUFFIX_LENGTH

_OF_THE_SERVER = (
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
_KEPT = ("namespace", "name", "generateName", *_OF_THE_SERVER[:-1])
"""Metadata that no update changes, but for ``managedFields``: they have rules of their own."""

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
"""Kinds of Kubernetes with a spec whose changes are not counted, and without one whose are."""


class Stale(Conflict):
    """An object changed while somebody outside was asked about it: start again from the newest."""


def disown(document: Document) -> None:
    """Take from a document that is to be created what only the server gives.

    A resource version is left: ``require_new`` refuses it, once all else is well.
    """
    metadata = document["metadata"]
    if metadata.get("resourceVersion") in ANY_VERSION:
        del metadata["resourceVersion"]
    for field in _OF_THE_SERVER:
        if field in metadata:
            del metadata[field]


def require_new(store: Store, call: Call, document: Document) -> None:
    """Refuse to create what is there, or claims to be: the last that the real server looks at."""
    if "resourceVersion" in document["metadata"]:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    if store.latest(storage(call.kind), call.key) is not None:
        raise already_exists(store, call)


def identify(store: Store, call: Call, document: Document, now: str) -> None:
    """Give a new object its name, uid, birth and first generation."""
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
    if _is_counted(call.kind, document):
        metadata["generation"] = 1


def _is_counted(kind: Kind, document: Document) -> bool:
    """Whether changes of an object are counted: Kubernetes leaves out kinds that nobody acts on."""
    if not kind.native or kind.resource in _COUNTED:
        return True
    return "spec" in document and kind.resource not in _UNCOUNTED


def _generated(store: Store, call: Call, base: str) -> str:
    """A free name that begins with ``base``."""
    while True:
        suffix = "".join(random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))  # noqa: S311 - no secret
        name = base[:_LONGEST_BASE] + suffix
        if store.latest(storage(call.kind), Key(call.namespace, name)) is None:
            return name


def require_match(call: Call, document: Document, old: Document) -> None:
    """Refuse a document that speaks of another object or of an older version of it."""
    require_name(call, document)
    known = old["metadata"]["resourceVersion"]
    if document["metadata"].get("resourceVersion", "") not in (*ANY_VERSION, known):
        raise conflict(call.kind, call.name, _MODIFIED)


def require_uid(call: Call, document: Document, record: Record | None) -> None:
    """Refuse what is to take the place of an object of the same name: its uid is a precondition.

    Where there is ``None``, it is one that cannot hold.
    """
    uid = at(document, "metadata", "uid")
    known = at(record.document(), "metadata", "uid") if uid and record is not None else ""
    if uid and uid != known:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
        raise conflict(call.kind, call.name, why)


def require_name(call: Call, document: Document) -> None:
    """Refuse a document whose name is not that of the path."""
    name = document["metadata"].setdefault("name", call.name)
    if name != call.name:
        raise BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
        )


def needs_revision(call: Call) -> Invalid:
    """The refusal of an update that says no version, in the name of the resource."""
    kind, why = call.kind, "must be specified for an update"
    cause = invalid("metadata.resourceVersion", 0, why)
    told = f'{kind.resource} "{call.name}" is invalid: {cause.field}: {cause.message}'
    details = Details(name=call.name, group=kind.group, kind=kind.plural, causes=[cause])
    return Invalid(told, details=details)


def already_exists(store: Store, call: Call) -> AlreadyExists:
    message = f'{call.kind.resource} "{call.name}" already exists'
    record = store.latest(storage(call.kind), call.key)
    if record is not None and at(record.document(), "metadata", "deletionTimestamp"):
        message = f"object is being deleted: {message}"
    details = Details(name=call.name, group=call.kind.group, kind=call.kind.plural)
    return AlreadyExists(message, details=details)


def stale(kind: Kind, name: str) -> Stale:
    known = conflict(kind, name, _MODIFIED)
    return Stale(known.message, details=known.details)


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        details=Details(name=name, group=kind.group, kind=kind.plural),
    )


def kind_conflict(kind: Kind, name: str, why: str) -> Conflict:
    """The refusal of a deletion, which the real server words by the kind and not the resource."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        details=Details(name=name, group=kind.group, kind=kind.name),
    )


def changes(call: Call, document: Document, old: Document) -> list[Cause]:
    """What a client wants changed of an object's identity, which nobody can change.

    What it leaves out is kept, and what it says of its birth and of a deletion that goes on is not
    looked at: the real server takes that back before it compares (rest.BeforeUpdate).  An update of
    the status of a custom resource is not about its metadata at all.
    """
    if call.subresource in call.kind.status_subresources and not call.kind.native:
        return []
    metadata, known = document["metadata"], old["metadata"]
    fields = ["uid"]
    if not call.subresource and "deletionTimestamp" not in known:
        fields += ["deletionTimestamp", "deletionGracePeriodSeconds"]
    return [
        invalid(f"metadata.{field}", metadata[field], "field is immutable")
        for field in fields
        if metadata.get(field) not in (None, "", known.get(field))
    ]


def keep_identity(document: Document, old: Document) -> None:
    """Metadata that no update changes."""
    metadata, known = document["metadata"], old["metadata"]
    for field in _KEPT:
        if field in known:
            metadata[field] = known[field]
        else:
            metadata.pop(field, None)
    metadata["resourceVersion"] = known["resourceVersion"]


def separate_status(call: Call, document: Document, old: Document) -> Document:
    """An update of an object leaves its status alone; one of its status changes nothing else."""
    if call.subresource in call.kind.status_subresources:
        merged = dict(old)
        metadata = merged["metadata"] = dict(old["metadata"])
        if call.kind.native:  # status updates of Kubernetes' own kinds may label, too
            for field in ("labels", "annotations"):
                _take(metadata, document["metadata"], field)
        _take(merged, document, "status")
        return merged
    if call.kind.status:
        _take(document, old, "status")
    return document


def _take(target: Document, source: Document, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def check_finalizers(call: Call, document: Document, old: Document) -> None:
    """An object that is being deleted takes no new finalizers."""
    if not at(old, "metadata", "deletionTimestamp"):
        return
    known = old["metadata"].get("finalizers") or []
    added = [each for each in document["metadata"].get("finalizers") or [] if each not in known]
    if added:
        shown = ", ".join(f'"{each}"' for each in added)
        message = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{shown}}}"
        )
        cause = Cause("metadata.finalizers", message, "FieldValueForbidden")
        raise call.kind.invalid(call.name, [cause])


def count_generation(call: Call, document: Document, old: Document) -> None:
    """The generation tells changes of what is wanted: of the spec, or of all but metadata.

    The latter for kinds without a status subresource, where the server cannot tell which is which.
    In which version it was written is no change of it.
    """
    metadata = document["metadata"]
    if "generation" not in metadata:
        return
    apart = {"apiVersion", "kind", "metadata"} | ({"status"} if call.kind.status else set())
    if any(document.get(field) != old.get(field) for field in {*document, *old} - apart):
        metadata["generation"] += 1


def unchanged(document: Document, old: Document) -> bool:
    """Whether a write changes nothing; when somebody wrote that again is no change."""
    kept = old["metadata"].get("managedFields")
    given = document["metadata"].get("managedFields")
    if given != kept and _without_times(given) == _without_times(kept):
        document = {**document, "metadata": {**document["metadata"], "managedFields": kept}}
    return document == old and same(document, old)


def _without_times(account: list[Document] | None) -> list[Document]:
    return [{**entry, "time": None} for entry in account or []]


def existing(store: Store, kind: Kind, stored: str, key: Key) -> Record:
    """The newest version of an object.  Raises NotFound."""
    record = store.latest(stored, key)
    if record is None:
        raise not_found(kind, key.name)
    return record
