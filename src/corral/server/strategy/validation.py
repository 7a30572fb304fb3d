"""Checks of a document before it is stored: version, schema, defaults, validation.

Create, update and patch share these steps.  Nothing here reads the store but for the namespace.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from corral.api.encoding import same_encoding, strict_decoding_faults
from corral.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    Forbidden,
    Invalid,
    NotFound,
    shortened,
)
from corral.api.go_decoder import decoding_error
from corral.api.kind import Kind, at
from corral.api.kinds.causes import invalid
from corral.api.kinds.kubevirt.v1alpha2 import hint
from corral.api.metadata import check_metadata, metadata_warnings
from corral.api.object import Document, Key
from corral.api.schema import NONE_VERIFIED, Schema, schema_for
from corral.api.schema.ratcheting import introduced
from corral.server.request import body, query
from corral.server.request.call import Call
from corral.server.strategy import managed_fields
from corral.store import Store

Allocate = Callable[[Document, Document | None], None]
"""Allocates IPs, ports and the like in a defaulted document; the second argument is the old one.
Raises Invalid, and InternalError where nothing is free."""

_EMPTY: Mapping[str, Any] = {
    "labels": {},
    "annotations": {},
    "ownerReferences": [],
    "finalizers": [],
}
"""Empty values of metadata, which are not stored."""


def incoming(call: Call, document: Document) -> Document:
    """Return a client's document, converted to the stored version, with a metadata object."""
    kind = call.kind
    sent = document.get("apiVersion"), document.get("kind")
    if sent[1] not in (None, "", kind.name) and not kind.native and sent[0] == call.api_version:
        raise _of_another_kind(call, document)
    if sent[1] not in (None, "", kind.name):
        raise BadRequest(
            f'{sent[1]} in version "{call.version.name}" cannot be handled as a {kind.name}: '
            f"the object provided is a {sent[1]}"
        )
    if sent[0] not in (None, "", call.api_version):
        raise BadRequest(
            f"the API version in the data ({sent[0]}) does not match the expected API version "
            f"({call.api_version})"
        )
    if not isinstance(document.get("metadata"), dict | None):
        raise BadRequest(f'{kind.name} in version "{call.version.name}": metadata is not an object')
    if call.version.view is not None:  # this version's schema differs from the stored one's
        schema = schema_for(kind, call.version.name)
        call.unknown_fields = schema.prune(document)
        schema.complete(document)
        if causes := schema.check(document):
            raise _unfit(call, document, causes, call.version.name)
    if call.version.read is not None:
        call.version.read(document)
    document["apiVersion"] = stored_api_version(kind)
    document["kind"] = kind.name
    metadata = _metadata(document)
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or call.namespace) == call.namespace:
        metadata["namespace"] = call.namespace
    else:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return document


def _of_another_kind(call: Call, document: Document) -> Invalid:
    """Return the refusal of another kind's object on a custom resource's path."""
    sent, name = str(document["kind"]), str(at(document, "metadata", "name") or call.name)
    cause = invalid("kind", sent, f"must be {call.kind.name}")
    details = Details(name=name, group=call.kind.group, kind=shortened(sent), causes=[cause])
    message = f'{shortened(sent)}.{call.kind.group} "{name}" is invalid: kind: {cause.message}'
    return Invalid(message, details=details)


def _metadata(document: Document) -> Document:
    """Return a document's metadata without empty values; a label that is null becomes empty."""
    metadata = document["metadata"] = document.get("metadata") or {}
    for name in [name for name in metadata if metadata[name] in (None, _EMPTY.get(name))]:
        del metadata[name]
    for name in ("labels", "annotations"):
        texts = metadata.get(name)
        if isinstance(texts, dict) and None in texts.values():
            texts.update({key: "" for key, text in texts.items() if text is None})
    return metadata


def stored_api_version(kind: Kind) -> str:
    """Return the ``apiVersion`` of a kind's stored documents."""
    if kind.stored_as is None:
        return kind.api_version
    group, version = kind.stored_as[0], "v1"
    return f"{group}/{version}" if group else version


def conform(call: Call, document: Document, old: Document | None = None) -> None:
    """Prune and check a document by its kind's schema: later steps rely on the types of fields.

    Unknown fields are dropped or refused, as ``fieldValidation`` says: also of KubeVirt's kinds,
    whose webhooks see documents after pruning.  For custom resources, faults that the ``old``
    document had too are tolerated (ratcheting); for other kinds, unchanged parts are not checked.
    Raises BadRequest and Invalid.
    """
    mode = query.field_validation(call.query, call.options)
    unknown = list(call.unknown_fields)
    verified = _verified_fields(call.kind, document, old)
    schema = _schema(call)
    fits = call.kind.stored_as is not None or schema.fits(document, verified)
    if not fits:
        unknown += schema.prune(document, verified)
    faults = _strict_faults(call, unknown)
    if faults and mode == "Strict":
        raise _undecodable(call, f"strict decoding error: {', '.join(faults)}")
    if mode == "Warn":
        call.warnings += [" ".join(each.split()) for each in faults]
    if not fits and (causes := _invalid_causes(call, document, old, verified)):
        raise _unfit(call, document, causes, call.kind.version)


def _strict_faults(call: Call, unknown: list[str]) -> list[str]:
    """Return the faults of strict decoding: duplicate keys and unknown fields.

    For native kinds they are in the order of the body; for custom resources, as in Kubernetes, the
    duplicates come first and the unknown fields are sorted.
    """
    unknown_faults = {path: f'unknown field "{path}"{hint(call.kind, path)}' for path in unknown}
    if call.kind.native and unknown and call.duplicate_faults and call.verb != "patch":
        if body.media_type(call) == body.JSON:
            return [
                unknown_faults.get(path) or f'{fault} field "{path}"'
                for fault, path in strict_decoding_faults(call.request.body, unknown)
            ]
        return [*call.duplicate_faults, *unknown_faults.values()]
    in_order = unknown if call.kind.native else sorted(unknown)
    return [*call.duplicate_faults, *(unknown_faults[path] for path in in_order)]


def _verified_fields(kind: Kind, document: Document, old: Document | None) -> frozenset[str]:
    """Return the parts of an update that equal the stored ones, for kinds whose schema is fixed."""
    if old is None or kind.schemas is not None:
        return NONE_VERIFIED
    return frozenset(
        name
        for name, part in document.items()
        if type(part) is dict and name in old and same_encoding(part, old[name])
    )


def _invalid_causes(
    call: Call, document: Document, old: Document | None, verified: frozenset[str]
) -> list[Cause]:
    schema = _schema(call)
    schema.complete(document)
    causes = schema.check(document, verified)
    if causes and old is not None and call.kind.schemas is not None:
        return introduced(causes, document, old, call.kind.schemas[call.version.name])
    return causes


def _unfit(call: Call, document: Document, causes: list[Cause], version: str) -> ApiError:
    """Return the refusal of a document that does not fit a version's schema.

    For native kinds it is the decoder's message, which ends at the first fault.
    """
    kind = call.kind
    if not kind.native or not (fault := decoding_error(kind, version, document)):
        name = str(at(document, "metadata", "name") or call.name)
        return kind.invalid(name, causes)
    return _undecodable(call, fault)


def _undecodable(call: Call, fault: str) -> ApiError:
    """Return the refusal of a body that cannot be decoded as the kind of its path."""
    kind = call.kind
    if call.verb == "patch":  # Kubernetes decodes the patched object, and blames the patch
        sent = shortened(call.request.body.decode(errors="replace"))
        cause = Cause("patch", f'Invalid value: "{sent}": {fault}')
        message = f' "" is invalid: {cause.field}: {cause.message}'
        return Invalid(message, details=Details(causes=[cause]))
    return BadRequest(
        f'{kind.name} in version "{call.version.name}" cannot be handled as a {kind.name}: {fault}'
    )


def _schema(call: Call) -> Schema:
    """Return the schema of a document: each version of a CustomResourceDefinition has its own."""
    return schema_for(call.kind, call.version.name if call.kind.schemas is not None else "")


def assign_managers(call: Call, document: Document, old: Document | None, *, now: str) -> None:
    """Compute the managedFields of a document as its client sent it, before admission.

    Changes afterwards, by webhooks or the server, have no manager.  May default the document.
    """
    if old is not None:
        call.kind.keep(document, old, call.user.name)
    if call.kind.native:
        call.kind.default(document)
    managed_fields.update(call, document, old, now)
    call.managed_fields = document["metadata"].pop("managedFields", [])


def check(
    call: Call,
    document: Document,
    old: Document | None,
    allocate: Allocate | None = None,
    *,
    changed: Iterable[Cause] = (),
    now: str,
) -> None:
    """Default and validate a document that has passed ``conform``.  Raises Invalid.

    ``changed`` are the causes of changes to immutable metadata.
    """
    kind = call.kind
    name = document["metadata"].get("name", "")
    if old is not None:
        kind.keep(document, old, call.user.name)
    if kind.native:  # a client manages the defaults of native kinds, as in Kubernetes
        kind.default(document)
        managed_fields.update(call, document, old, now)
    else:
        managed_fields.update(call, document, old, now)
        kind.default(document)
    causes = [*changed, *check_metadata(kind, document, old), *_check_scale(kind, document)]
    if causes and not kind.native:  # KubeVirt's webhooks see valid metadata only
        raise kind.invalid(name, causes)
    if allocate is not None and call.subresource != "status":
        allocate(document, old)
    verdict = kind.validate(document, old, call.user.name)
    if causes:
        raise kind.invalid(name, [*causes, *verdict.causes])
    if verdict.causes:
        raise kind.denied(name, verdict.causes, creating=old is None)
    call.warnings += [*metadata_warnings(kind, document, old), *verdict.warnings]


def _check_scale(kind: Kind, document: Document) -> list[Cause]:
    """Return the cause of a negative replica count, which any kind with a scale refuses."""
    if kind.scale is None:
        return []
    replicas = at(document, *kind.scale.spec_replicas)
    if not isinstance(replicas, int) or replicas >= 0:
        return []
    message = f"Invalid value: {replicas}: should be a non-negative integer"
    return [Cause("." + ".".join(kind.scale.spec_replicas), message)]


def require_namespace(store: Store, call: Call, name: str) -> None:
    """Refuse an object whose namespace is missing or terminating.  Raises NotFound, Forbidden."""
    if not call.kind.namespaced:
        return
    namespace = store.latest("namespaces", Key("", call.namespace))
    if namespace is None:
        raise _missing_namespace(call.namespace)
    if b'"deletionTimestamp"' not in namespace.rest:
        return
    if at(namespace.document(), "metadata", "deletionTimestamp"):
        message = f"namespace {call.namespace} is being terminated"
        cause = Cause("metadata.namespace", message, "NamespaceTerminating")
        raise Forbidden(
            f'{call.kind.resource} "{name}" is forbidden: unable to create new content in '
            f"namespace {call.namespace} because it is being terminated",
            details=Details(
                name=name, group=call.kind.group, kind=call.kind.plural, causes=[cause]
            ),
        )


def _missing_namespace(name: str) -> NotFound:
    return NotFound(f'namespaces "{name}" not found', details=Details(name=name, kind="namespaces"))
