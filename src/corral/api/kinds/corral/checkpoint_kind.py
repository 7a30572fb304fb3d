"""The kind VirtualMachineCheckpoint: names, columns and validation."""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kind import Kind, Verdict, Version, at
from corral.api.kinds.causes import each_invalid
from corral.api.kinds.columns import age, condition, field, number
from corral.api.kinds.corral.checkpoint import READY, VirtualMachineCheckpoint
from corral.api.names import subdomain_faults
from corral.api.object import Document


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    if old is None:
        return Verdict(list(_causes(document["spec"])))
    if document.get("spec") == old.get("spec"):
        return Verdict()
    message = "a checkpoint cannot be changed: create another one"
    return Verdict([Cause("spec", message, "FieldValueForbidden")])


def _causes(spec: Document) -> Iterator[Cause]:
    name = at(spec, "source", "name")
    if not name:
        yield Cause("spec.source.name", "name the VMI", "FieldValueRequired")
    else:
        yield from each_invalid("spec.source.name", name, subdomain_faults(name))


CHECKPOINT: Final = Kind(
    group="corral.dev",
    plural="virtualmachinecheckpoints",
    short=("vmcheckpoint",),
    categories=("all",),
    versions=(Version(name="v1alpha1"),),
    view=VirtualMachineCheckpoint,
    columns=(
        field("Source", "spec", "source", "name", description="the VMI that it is made of"),
        field("Node", "status", "nodeName", description="the node that has its files"),
        number("Bytes", "status", "sizeBytes", description="what its files occupy"),
        condition("Ready", READY, description="whether VMIs can start from it"),
        number("Forks", "status", "forks", description="VMIs that have started from it"),
        age(),
    ),
    validate=_validate,
)
