"""PersistentVolume: storage that is there, and the claim that it is for."""

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
"""Every other field of a volume's spec is a source: where its bytes are."""
_OPERATORS = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")


def _claim(document: Document) -> str:
    claim = at(document, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _phase(document: Document) -> str:
    if at(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    return at(document, "status", "phase") or ""


def default(document: Document) -> None:
    """A volume stays when its claim goes, and holds a file system."""
    spec = document.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", RETAIN)
    spec.setdefault("volumeMode", FILESYSTEM)


def default_create(document: Document) -> None:
    """A new volume waits to be looked at, and cannot go while a claim has it."""
    finalizers = document["metadata"].setdefault("finalizers", [])
    if VOLUME_PROTECTION not in finalizers:
        finalizers.append(VOLUME_PROTECTION)
    document["status"] = {"phase": PENDING}


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """What the schema cannot say of volumes."""
    spec = document["spec"]
    causes = limited(_spec(spec))
    if old is not None:
        causes += limited(_changes(spec, old["spec"]))
    return Verdict(causes)


def _spec(spec: Document) -> Iterator[Cause]:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required("spec.accessModes")
    yield from mode_causes("spec.accessModes", modes)
    yield from _capacity(spec.get("capacity") or {})
    yield from _sources(spec)
    policy = spec["persistentVolumeReclaimPolicy"]
    if policy not in RECLAIM_POLICIES:
        yield unsupported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)
    if name := spec.get("storageClassName"):
        yield from each_invalid("spec.storageClassName", name, subdomain_faults(name))
    yield from volume_mode_causes("spec.volumeMode", spec["volumeMode"])
    yield from _affinity(spec)


def _capacity(capacity: Document) -> Iterator[Cause]:
    if not capacity:
        yield required("spec.capacity")
    elif capacity.keys() != {STORAGE}:
        yield unsupported("spec.capacity", capacity, (STORAGE,))
    for resource, quantity in capacity.items():
        yield from size_causes(f"spec.capacity[{resource}]", quantity)


def sources(spec: Document) -> dict[str, Any]:
    """Where the bytes of a volume are: one source, where the volume is a valid one."""
    return {
        name: value
        for name, value in spec.items()
        if name not in _OTHER_FIELDS and value is not None
    }


def _sources(spec: Document) -> Iterator[Cause]:
    first, *others = sources(spec) or ("",)
    if not first:
        yield required("spec", "must specify a volume type")
    for name in others:
        yield forbidden(f"spec.{name}", "may not specify more than 1 volume type")
    if first in _SOURCES:
        yield from _SOURCES[first](f"spec.{first}", spec[first], spec)


def _csi(path: str, source: Document, _spec: Document) -> Iterator[Cause]:
    for name in ("driver", "volumeHandle"):
        if not source.get(name):
            yield required(f"{path}.{name}")


def _host_path(path: str, source: Document, spec: Document) -> Iterator[Cause]:
    yield from _path(path, source)
    if source.get("path") == "/" and spec["persistentVolumeReclaimPolicy"] == RECYCLE:
        why = "may not be 'recycle' for a hostPath volume at '/'"
        yield forbidden("spec.persistentVolumeReclaimPolicy", why)


def _local(path: str, source: Document, spec: Document) -> Iterator[Cause]:
    yield from _path(path, source)
    if not spec.get("nodeAffinity"):
        yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _path(path: str, source: Document) -> Iterator[Cause]:
    named = source.get("path") or ""
    if not named:
        yield required(f"{path}.path")
    elif ".." in named.split("/"):
        yield invalid(f"{path}.path", named, "must not contain '..'")


_SOURCES = {"csi": _csi, "hostPath": _host_path, "local": _local}
"""Sources that Kubernetes says more of than their schema does; others are refused by nobody here,
and used by nobody."""


def _affinity(spec: Document) -> Iterator[Cause]:
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


def _changes(spec: Document, old: Document) -> Iterator[Cause]:
    if sources(spec) != sources(old):
        where = "spec.persistentvolumesource"
        told = differences(sources(old), sources(spec))
        yield forbidden(where, f"{where} is immutable after creation\n{told}")
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
            description="who may use it at the same time",
        ),
        Column(
            name="Reclaim Policy",
            cell=text("spec", "persistentVolumeReclaimPolicy"),
            description="what becomes of it when its claim is gone",
        ),
        Column(name="Status", cell=_phase, description="whether a claim has it"),
        Column(name="Claim", cell=_claim, description="the claim that it is for"),
        *CLASS_COLUMNS,
        Column(name="Reason", cell=text("status", "reason"), description="why it is as it is"),
        age(),
        MODE_COLUMN,
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
