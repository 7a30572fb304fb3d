"""StorageClass: the provisioner of PVs, and its parameters."""

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
"""Recycle is not among them: provisioned volumes are not reused."""
BINDING_MODES = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)


def _name(document: Document) -> str:
    name = document["metadata"]["name"]
    return f"{name} (default)" if is_default(document["metadata"].get("annotations")) else name


def default(document: Document) -> None:
    """Default reclaim policy and binding mode."""
    for name, value in (("reclaimPolicy", DELETE), ("volumeBindingMode", IMMEDIATE)):
        if document.get(name) is None:
            document[name] = value


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a class; provisioner, parameters and policies are immutable."""
    causes = limited(_check(document))
    if old is not None:
        causes += _check_changes(document, old)
    return Verdict(causes)


def _check(document: Document) -> Iterator[Cause]:
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


def _check_changes(document: Document, old: Document) -> Iterator[Cause]:
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
        Column(name="Name", cell=_name, format="name", description="its name"),
        field("Provisioner", "provisioner", description="its provisioner"),
        field("ReclaimPolicy", "reclaimPolicy", description="reclaim policy of its volumes"),
        field("VolumeBindingMode", "volumeBindingMode", description="when volumes are provisioned"),
        Column(
            name="AllowVolumeExpansion",
            cell=lambda document: "true" if document.get("allowVolumeExpansion") else "false",
            description="whether its claims can be expanded",
        ),
        age(),
    ),
    default=default,
    validate=validate,
)
