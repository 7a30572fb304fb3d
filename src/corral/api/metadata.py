"""Validation of metadata, as apimachinery's ValidateObjectMeta, with its messages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from corral.api.errors import Cause, limited, shortened
from corral.api.kind import Kind
from corral.api.names import (
    label_faults,
    label_key_faults,
    label_value_faults,
    path_segment_faults,
    service_name_faults,
    subdomain_faults,
)
from corral.api.object import Document

LARGEST_ANNOTATIONS = 256 * 1024
"""Bytes of the keys and values of all annotations."""

_EMPTY: Final[Mapping[str, Any]] = {}
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_NAME_FAULTS: Mapping[tuple[str, str], Callable[[str], list[str]]] = {
    ("", "Namespace"): label_faults,
    ("", "Service"): service_name_faults,
    ("apiregistration.k8s.io", "APIService"): path_segment_faults,
    ("certificates.k8s.io", "CertificateSigningRequest"): path_segment_faults,
    **{
        ("rbac.authorization.k8s.io", name): path_segment_faults
        for name in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    },
}
"""Validation of names by kind, for names that are labels of host names, or only steps of paths;
those of all other kinds are subdomains."""


_STANDARD: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
"""Finalizers without a domain."""
_UNQUALIFIED: Final = frozenset(
    {
        *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"),
        "coordination.k8s.io",
    }
)
"""Groups of Kubernetes' own kinds whose finalizers may have any name."""


def check_metadata(kind: Kind, document: Document, old: Document | None = None) -> list[Cause]:
    """Return the causes for which metadata is invalid; parts unchanged from ``old`` are skipped."""
    metadata = document.get("metadata") or {}
    finalizers = _check_qualified(kind, document, old)
    if old is not None:
        return limited(chain(_check_rest(metadata, old["metadata"]), finalizers))
    return limited(chain(_check_name(kind, metadata), _check_rest(metadata), finalizers))


def metadata_warnings(kind: Kind, document: Document, old: Document | None = None) -> list[str]:
    """Return warnings about finalizers of custom resources."""
    if kind.native:
        return []
    return [
        f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name including a '
        "path (/) to avoid accidental conflicts with other finalizer writers"
        for finalizer in sorted({name for _, name in _unqualified(document, old)})
    ]


def _check_qualified(kind: Kind, document: Document, old: Document | None) -> Iterable[Cause]:
    if not kind.native or kind.group in _UNQUALIFIED:
        return
    for index, name in _unqualified(document, old):
        fault = "name is neither a standard finalizer name nor is it fully qualified"
        yield from _invalid(f"metadata.finalizers[{index}]", name, [fault])


def _unqualified(document: Document, old: Document | None) -> Iterable[tuple[int, str]]:
    """Yield the new finalizers without a domain, with their indices."""
    old_names = _finalizers(old) if old is not None else ()
    for index, name in enumerate(_finalizers(document)):
        if "/" not in name and name not in _STANDARD and name not in old_names:
            yield index, name


def _finalizers(document: Document) -> Sequence[str]:
    return (document.get("metadata") or _EMPTY).get("finalizers") or ()


def check_embedded_metadata(metadata: Mapping[str, Any], path: str) -> list[Cause]:
    """Return the causes for which the metadata of an embedded object, at a path, is invalid.

    It needs no name; one has to be a valid step of a path.
    """
    namespace = metadata.get("namespace") or ""
    found = chain(
        _check_names(path_segment_faults, metadata),
        _invalid("metadata.namespace", namespace, label_faults(namespace) if namespace else ()),
        _check_rest(metadata),
    )
    return [
        Cause(path + cause.field.removeprefix("metadata"), cause.message, cause.reason)
        for cause in limited(found)
    ]


def check_labels(labels: Mapping[str, str], path: str) -> list[Cause]:
    """Return the causes for which labels at a path are invalid, also of templates and selectors."""
    return limited(_check_labels(labels, path))


def _invalid(path: str, value: str, faults: Iterable[str]) -> list[Cause]:
    return [Cause(path, f'Invalid value: "{shortened(value)}": {fault}') for fault in faults]


def _check_name(kind: Kind, metadata: Mapping[str, Any]) -> Iterable[Cause]:
    if not metadata.get("name"):
        message = "Required value: name or generateName is required"
        yield Cause("metadata.name", message, "FieldValueRequired")
    yield from _check_names(_NAME_FAULTS.get((kind.group, kind.name), subdomain_faults), metadata)


def _check_names(
    faults: Callable[[str], list[str]], metadata: Mapping[str, Any]
) -> Iterable[Cause]:
    name, base = metadata.get("name") or "", metadata.get("generateName") or ""
    if name and (found := faults(name)):
        yield from _invalid("metadata.name", name, found)
    # The generated suffix begins with a letter or a digit, so a trailing dash is valid.
    if base and (found := faults(base.rstrip("-") or base)):
        yield from _invalid("metadata.generateName", base, found)


def _check_rest(metadata: Mapping[str, Any], old: Mapping[str, Any] = _EMPTY) -> Iterable[Cause]:
    for name, check in _CHECKS.items():
        part = metadata.get(name)
        if part and part != old.get(name):
            yield from check(part)


def _check_labels(labels: Mapping[str, str], path: str) -> Iterable[Cause]:
    for key, value in labels.items():
        if faults := label_key_faults(key):
            yield from _invalid(path, key, faults)
        if faults := label_value_faults(value):
            yield from _invalid(path, value, faults)


def _check_annotations(annotations: Mapping[str, str]) -> Iterable[Cause]:
    size = 0
    for key, value in annotations.items():
        # Keys are compared without regard to case, as the real server does.
        if faults := label_key_faults(key.lower()):
            yield from _invalid("metadata.annotations", key, faults)
        size += len(key.encode()) + len(value.encode())
    if size > LARGEST_ANNOTATIONS:
        message = f"Too long: may not be more than {LARGEST_ANNOTATIONS} bytes"
        yield Cause("metadata.annotations", message, "FieldValueTooLong")


def _check_owners(owners: Iterable[Mapping[str, Any]]) -> Iterable[Cause]:
    controllers = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for name in _OWNER_FIELDS:
            if not owner.get(name):
                message = f'Invalid value: "": {_owner_fault(name)}'
                yield Cause(f"{path}.{name}", message)
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        first, second = (
            shortened(f"{one.get('kind')}/{one.get('name')}") for one in controllers[:2]
        )
        message = (
            "Invalid value: only one reference can have Controller set to true. "
            f'Found "true" in references for {first} and {second}'
        )
        yield Cause("metadata.ownerReferences", message)


def _owner_fault(name: str) -> str:
    return "version must not be empty" if name == "apiVersion" else f"{name} must not be empty"


def _check_finalizers(finalizers: Sequence[str]) -> Iterable[Cause]:
    path = "metadata.finalizers"
    for finalizer in finalizers:
        if faults := label_key_faults(finalizer):
            yield from _invalid(path, finalizer, faults)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        fault = "finalizer orphan and foregroundDeletion cannot be both set"
        yield Cause(path, f"Invalid value: [{shortened(', '.join(finalizers))}]: {fault}")


_CHECKS: Final[Mapping[str, Callable[[Any], Iterable[Cause]]]] = {
    "labels": partial(_check_labels, path="metadata.labels"),
    "annotations": _check_annotations,
    "ownerReferences": _check_owners,
    "finalizers": _check_finalizers,
}
"""Checks of the parts of metadata that clients set, in the order of the causes."""
