"""PersistentVolumeClaim: somebody's wish for a volume, and the volume that fulfils it."""

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
    """What the claim has, not what it asks for: blank until it is given a volume."""
    if not at(document, "spec", "volumeName"):
        return ""
    return str(amount(at(document, "status", "capacity", STORAGE)))


def _modes(document: Document) -> str:
    if not at(document, "spec", "volumeName"):
        return ""
    return abbreviated(at(document, "status", "accessModes") or ())


def default(document: Document) -> None:
    """A claim is for a file system, where it does not say otherwise."""
    spec = document.setdefault("spec", {})
    spec.setdefault("volumeMode", FILESYSTEM)
    spec.setdefault("resources", {})


def default_create(document: Document) -> None:
    """A new claim waits for its volume, and cannot go while it is used."""
    finalizers = document["metadata"].setdefault("finalizers", [])
    if CLAIM_PROTECTION not in finalizers:
        finalizers.append(CLAIM_PROTECTION)
    document["status"] = {"phase": PENDING}
    _repeat_source(document.get("spec") or {})


def _repeat_source(spec: Document) -> None:
    """Of the two fields that name a source, one is filled from the other (Kubernetes)."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """What the schema cannot say of claims."""
    causes = limited(_spec(document["spec"]))
    if old is not None:
        causes += limited(_changes(document, old))
    return Verdict(causes)


def _spec(spec: Document) -> Iterator[Cause]:
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
            yield from _source(f"spec.{name}", spec[name])


def _source(path: str, source: Document) -> Iterator[Cause]:
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind") or "", why)


def _changes(document: Document, old: Document) -> Iterator[Cause]:
    fixed, before = _fixed(document, old)
    if fixed != before:
        yield forbidden("spec", f"{_IMMUTABLE}\n{differences(before, fixed)}")
    size, was = (amount(_requested(each)) for each in (document, old))
    if size < was and size <= amount(at(document, "status", "capacity", STORAGE)):
        why = "field can not be less than status.capacity"
        yield forbidden("spec.resources.requests.storage", why)
    mode = document["spec"]["volumeMode"]
    if mode != old["spec"]["volumeMode"]:
        yield invalid("volumeMode", mode, "field is immutable")


def _requested(document: Document) -> str | None:
    size: str | None = at(document, "spec", "resources", "requests", STORAGE)
    return size


def _fixed(document: Document, old: Document) -> tuple[Document, Document]:
    """What may not change, now and before: what may is taken from the new one."""
    spec, before = document["spec"], deepcopy(old["spec"])
    free = []
    if not before.get("volumeName"):
        free.append("volumeName")
    if class_of(old) is None and OLD_CLASS not in (document["metadata"].get("annotations") or {}):
        free.append("storageClassName")  # the default class, given later
    if at(document, "status", "phase") == BOUND:
        free.append("volumeAttributesClassName")
        if (size := _requested(document)) is not None:
            before["resources"].setdefault("requests", {})[STORAGE] = size
    for name in free:
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
        Column(name="Status", cell=_phase, description="whether it has its volume"),
        Column(name="Volume", cell=text("spec", "volumeName"), description="its volume"),
        Column(name="Capacity", cell=_capacity, description="the size that it has"),
        Column(name="Access Modes", cell=_modes, description="who may use it at the same time"),
        *CLASS_COLUMNS,
        age(),
        MODE_COLUMN,
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
