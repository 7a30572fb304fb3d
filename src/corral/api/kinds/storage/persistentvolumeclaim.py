"""PersistentVolumeClaim: names, columns, defaults and validation."""

from collections.abc import Iterator
from copy import deepcopy

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required
from corral.api.kinds.columns import age, text
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.kinds.storage.common import (
    BOUND,
    CLAIM_PROTECTION,
    CLASS_COLUMNS,
    FILESYSTEM,
    MODE_COLUMN,
    OLD_CLASS,
    ONE_POD,
    PENDING,
    STORAGE,
    abbreviated,
    class_of,
    differences,
    mode_causes,
    size_causes,
    volume_mode_causes,
)
from corral.api.names import subdomain_faults
from corral.api.object import Document
from corral.api.quantity import amount

_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def _phase(document: Document) -> str:
    if at(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    return at(document, "status", "phase") or ""


def _capacity(document: Document) -> str:
    """Return the actual, not the requested capacity; blank until the PVC is bound."""
    if not at(document, "spec", "volumeName"):
        return ""
    return str(amount(at(document, "status", "capacity", STORAGE)))


def _modes(document: Document) -> str:
    if not at(document, "spec", "volumeName"):
        return ""
    return abbreviated(at(document, "status", "accessModes") or ())


def default(document: Document) -> None:
    """Default volume mode and resources."""
    spec = document.setdefault("spec", {})
    spec.setdefault("volumeMode", FILESYSTEM)
    spec.setdefault("resources", {})


def default_create(document: Document) -> None:
    """Set phase and protection finalizer of a new PVC."""
    finalizers = document["metadata"].setdefault("finalizers", [])
    if CLAIM_PROTECTION not in finalizers:
        finalizers.append(CLAIM_PROTECTION)
    document["status"] = {"phase": PENDING}
    _sync_data_sources(document.get("spec") or {})


def _sync_data_sources(spec: Document) -> None:
    """Copy ``dataSource`` to ``dataSourceRef``, or the reverse, as Kubernetes does."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a PVC beyond its schema."""
    causes = limited(_check_spec(document["spec"]))
    if old is not None:
        causes += limited(_check_changes(document, old))
    return Verdict(causes)


def _check_spec(spec: Document) -> Iterator[Cause]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    yield from mode_causes("spec.accessModes", modes)
    if ONE_POD in modes and len(set(modes)) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        yield forbidden("spec.accessModes", why)
    if spec.get("selector"):
        yield from selector_causes("spec.selector", spec["selector"])
    size = (spec["resources"].get("requests") or {}).get(STORAGE)
    if size is None:
        yield required(f"spec.resources[{STORAGE}]")
    else:
        yield from size_causes(f"spec.resources[{STORAGE}]", size)
    for name in ("storageClassName", "volumeAttributesClassName"):
        if value := spec.get(name):
            yield from each_invalid(f"spec.{name}", value, subdomain_faults(value))
    yield from volume_mode_causes("spec.volumeMode", spec["volumeMode"])
    for name in ("dataSource", "dataSourceRef"):
        if spec.get(name):
            yield from _check_data_source(f"spec.{name}", spec[name])


def _check_data_source(path: str, source: Document) -> Iterator[Cause]:
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind") or "", why)


def _check_changes(document: Document, old: Document) -> Iterator[Cause]:
    new, before = _comparable_specs(document, old)
    if new != before:
        yield forbidden("spec", f"{_IMMUTABLE}\n{differences(before, new)}")
    size, old_size = (amount(_requested(each)) for each in (document, old))
    if size < old_size and size <= amount(at(document, "status", "capacity", STORAGE)):
        why = "field can not be less than status.capacity"
        yield forbidden("spec.resources.requests.storage", why)
    mode = document["spec"]["volumeMode"]
    if mode != old["spec"]["volumeMode"]:
        yield invalid("volumeMode", mode, "field is immutable")


def _requested(document: Document) -> str | None:
    size: str | None = at(document, "spec", "resources", "requests", STORAGE)
    return size


def _comparable_specs(document: Document, old: Document) -> tuple[Document, Document]:
    """Return the new and the old spec, the old one with the permitted changes applied."""
    spec, before = document["spec"], deepcopy(old["spec"])
    mutable = []
    if not before.get("volumeName"):
        mutable.append("volumeName")
    if class_of(old) is None and OLD_CLASS not in (document["metadata"].get("annotations") or {}):
        mutable.append("storageClassName")  # the default class is set later
    if at(document, "status", "phase") == BOUND:
        mutable.append("volumeAttributesClassName")
        if (size := _requested(document)) is not None:
            before["resources"].setdefault("requests", {})[STORAGE] = size
    for name in mutable:
        if spec.get(name) is None:
            before.pop(name, None)
        else:
            before[name] = spec[name]
    return {key: value for key, value in spec.items() if value is not None}, before


CLAIM = kubernetes_kind(
    group="",
    plural="persistentvolumeclaims",
    short=("pvc",),
    view=PersistentVolumeClaim,
    columns=(
        Column(name="Status", cell=_phase, description="its phase"),
        Column(name="Volume", cell=text("spec", "volumeName"), description="its volume"),
        Column(name="Capacity", cell=_capacity, description="its capacity"),
        Column(name="Access Modes", cell=_modes, description="its access modes"),
        *CLASS_COLUMNS,
        age(),
        MODE_COLUMN,
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
