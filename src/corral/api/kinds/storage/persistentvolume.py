"""PersistentVolume: names, columns, defaults and validation."""

from collections.abc import Iterator
from typing import Any

from lightkube.models.core_v1 import PersistentVolume

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required, unsupported
from corral.api.kinds.columns import age, text
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.storage.common import (
    CLASS_COLUMNS,
    FILESYSTEM,
    MODE_COLUMN,
    PENDING,
    RECLAIM_POLICIES,
    RECYCLE,
    RETAIN,
    STORAGE,
    VOLUME_PROTECTION,
    abbreviated,
    differences,
    mode_causes,
    size_causes,
    volume_mode_causes,
)
from corral.api.names import label_key_faults, subdomain_faults
from corral.api.object import Document
from corral.api.quantity import amount

_OTHER_FIELDS = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
"""The fields of a PV's spec that are no sources."""
_OPERATORS = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")


def _claim(document: Document) -> str:
    claim = at(document, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _phase(document: Document) -> str:
    if at(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    return at(document, "status", "phase") or ""


def default(document: Document) -> None:
    """Default reclaim policy and volume mode."""
    spec = document.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", RETAIN)
    spec.setdefault("volumeMode", FILESYSTEM)


def default_create(document: Document) -> None:
    """Set phase and protection finalizer of a new PV."""
    finalizers = document["metadata"].setdefault("finalizers", [])
    if VOLUME_PROTECTION not in finalizers:
        finalizers.append(VOLUME_PROTECTION)
    document["status"] = {"phase": PENDING}


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a PV beyond its schema."""
    spec = document["spec"]
    causes = limited(_check_spec(spec))
    if old is not None:
        causes += limited(_check_changes(spec, old["spec"]))
    return Verdict(causes)


def _check_spec(spec: Document) -> Iterator[Cause]:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required("spec.accessModes")
    yield from mode_causes("spec.accessModes", modes)
    yield from _check_capacity(spec.get("capacity") or {})
    yield from _check_sources(spec)
    policy = spec["persistentVolumeReclaimPolicy"]
    if policy not in RECLAIM_POLICIES:
        yield unsupported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)
    if name := spec.get("storageClassName"):
        yield from each_invalid("spec.storageClassName", name, subdomain_faults(name))
    yield from volume_mode_causes("spec.volumeMode", spec["volumeMode"])
    yield from _check_affinity(spec)


def _check_capacity(capacity: Document) -> Iterator[Cause]:
    if not capacity:
        yield required("spec.capacity")
    elif capacity.keys() != {STORAGE}:
        yield unsupported("spec.capacity", capacity, (STORAGE,))
    for resource, quantity in capacity.items():
        yield from size_causes(f"spec.capacity[{resource}]", quantity)


def sources(spec: Document) -> dict[str, Any]:
    """Return the sources of a PV; a valid one has exactly one."""
    return {
        name: value
        for name, value in spec.items()
        if name not in _OTHER_FIELDS and value is not None
    }


def _check_sources(spec: Document) -> Iterator[Cause]:
    first, *others = sources(spec) or ("",)
    if not first:
        yield required("spec", "must specify a volume type")
    for name in others:
        yield forbidden(f"spec.{name}", "may not specify more than 1 volume type")
    if first in _SOURCE_CHECKS:
        yield from _SOURCE_CHECKS[first](f"spec.{first}", spec[first], spec)


def _check_csi(path: str, source: Document, _check_spec: Document) -> Iterator[Cause]:
    for name in ("driver", "volumeHandle"):
        if not source.get(name):
            yield required(f"{path}.{name}")


def _check_host_path(path: str, source: Document, spec: Document) -> Iterator[Cause]:
    yield from _check_path(path, source)
    if source.get("path") == "/" and spec["persistentVolumeReclaimPolicy"] == RECYCLE:
        why = "may not be 'recycle' for a hostPath volume at '/'"
        yield forbidden("spec.persistentVolumeReclaimPolicy", why)


def _check_local(path: str, source: Document, spec: Document) -> Iterator[Cause]:
    yield from _check_path(path, source)
    if not spec.get("nodeAffinity"):
        yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _check_path(path: str, source: Document) -> Iterator[Cause]:
    source_path = source.get("path") or ""
    if not source_path:
        yield required(f"{path}.path")
    elif ".." in source_path.split("/"):
        yield invalid(f"{path}.path", source_path, "must not contain '..'")


_SOURCE_CHECKS = {"csi": _check_csi, "hostPath": _check_host_path, "local": _check_local}
"""Checks of sources beyond their schema; other sources are accepted, but nothing here uses them."""


def _check_affinity(spec: Document) -> Iterator[Cause]:
    affinity = spec.get("nodeAffinity")
    if not affinity:
        return
    path = "spec.nodeAffinity.required"
    if not affinity.get("required"):
        yield required(path, "must specify required node constraints")
        return
    terms = affinity["required"].get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        for place, expression in enumerate(term.get("matchExpressions") or ()):
            here = f"{path}.nodeSelectorTerms[{index}].matchExpressions[{place}]"
            if expression["operator"] not in _OPERATORS:
                yield invalid(
                    f"{here}.operator", expression["operator"], "not a valid selector operator"
                )
            key = expression["key"]
            yield from each_invalid(f"{here}.key", key, label_key_faults(key))


def _check_changes(spec: Document, old: Document) -> Iterator[Cause]:
    if sources(spec) != sources(old):
        where = "spec.persistentvolumesource"
        changed = differences(sources(old), sources(spec))
        yield forbidden(where, f"{where} is immutable after creation\n{changed}")
    if spec["volumeMode"] != old["volumeMode"]:
        yield invalid("volumeMode", spec["volumeMode"], "field is immutable")
    if old.get("nodeAffinity") and spec.get("nodeAffinity") != old["nodeAffinity"]:
        yield invalid("nodeAffinity", spec.get("nodeAffinity"), "field is immutable")


PERSISTENT_VOLUME = kubernetes_kind(
    group="",
    plural="persistentvolumes",
    short=("pv",),
    view=PersistentVolume,
    namespaced=False,
    columns=(
        Column(
            name="Capacity",
            cell=lambda document: str(amount(at(document, "spec", "capacity", STORAGE))),
            description="its size",
        ),
        Column(
            name="Access Modes",
            cell=lambda document: abbreviated(at(document, "spec", "accessModes") or ()),
            description="its access modes",
        ),
        Column(
            name="Reclaim Policy",
            cell=text("spec", "persistentVolumeReclaimPolicy"),
            description="its reclaim policy",
        ),
        Column(name="Status", cell=_phase, description="its phase"),
        Column(name="Claim", cell=_claim, description="its claim"),
        *CLASS_COLUMNS,
        Column(name="Reason", cell=text("status", "reason"), description="reason of its phase"),
        age(),
        MODE_COLUMN,
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
