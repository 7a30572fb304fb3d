"""StorageClass: who makes the volumes of claims that name it, and how."""

from collections.abc import Iterator

from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required, unsupported
from corral.api.kinds.columns import age, field
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.storage.common import (
    DELETE,
    IMMEDIATE,
    RETAIN,
    WAIT_FOR_FIRST_CONSUMER,
    is_default,
)
from corral.api.names import label_key_faults
from corral.api.object import Document

RECLAIM_POLICIES = (DELETE, RETAIN)
"""A class cannot ask for Recycle: what a provisioner made it does not wipe and offer again."""
BINDING_MODES = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)


def _name(document: Document) -> str:
    name = document["metadata"]["name"]
    return f"{name} (default)" if is_default(document["metadata"].get("annotations")) else name


def default(document: Document) -> None:
    """Volumes go with their claims, and are made at once."""
    for name, value in (("reclaimPolicy", DELETE), ("volumeBindingMode", IMMEDIATE)):
        if document.get(name) is None:
            document[name] = value


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Who makes volumes, and how, is settled when the class is made."""
    causes = limited(_causes(document))
    if old is not None:
        causes += _changes(document, old)
    return Verdict(causes)


def _causes(document: Document) -> Iterator[Cause]:
    provisioner = document["provisioner"]
    if provisioner:
        yield from each_invalid("provisioner", provisioner, label_key_faults(provisioner.lower()))
    else:
        yield required("provisioner")
    for key in document.get("parameters") or ():
        if not key:
            yield invalid("parameters", key, "field can not be empty.")
    policy, mode = document["reclaimPolicy"], document["volumeBindingMode"]
    if policy not in RECLAIM_POLICIES:
        yield unsupported("reclaimPolicy", policy, RECLAIM_POLICIES)
    if mode not in BINDING_MODES:
        yield unsupported("volumeBindingMode", mode, BINDING_MODES)


def _changes(document: Document, old: Document) -> Iterator[Cause]:
    for name in ("parameters", "provisioner", "reclaimPolicy"):
        if (document.get(name) or None) != (old.get(name) or None):
            yield forbidden(name, f"updates to {name} are forbidden.")
    if document["volumeBindingMode"] != old["volumeBindingMode"]:
        yield invalid("volumeBindingMode", document["volumeBindingMode"], "field is immutable")


STORAGE_CLASS = kubernetes_kind(
    group="storage.k8s.io",
    plural="storageclasses",
    short=("sc",),
    view=StorageClass,
    namespaced=False,
    status=False,
    name_first=False,
    columns=(
        Column(name="Name", cell=_name, format="name", description="what the object is called"),
        field("Provisioner", "provisioner", description="who makes its volumes"),
        field("ReclaimPolicy", "reclaimPolicy", description="what becomes of volumes afterwards"),
        field("VolumeBindingMode", "volumeBindingMode", description="when volumes are made"),
        Column(
            name="AllowVolumeExpansion",
            cell=lambda document: "true" if document.get("allowVolumeExpansion") else "false",
            description="whether its claims can grow",
        ),
        age(),
    ),
    default=default,
    validate=validate,
)
