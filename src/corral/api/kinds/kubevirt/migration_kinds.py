"""The kinds of live migrations: names, versions, columns and validation.

What depends on the VMI of a migration is checked by ``server/admission/migrations.py``.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kind import Kind, Verdict, Version, Webhook, at
from corral.api.kinds.columns import age, field
from corral.api.kinds.kubevirt.migration import (
    FINAL,
    FINALIZER,
    POLICIES,
    PRIORITIES,
    SELECTOR_LABEL,
    MigrationPolicy,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.vmi import migration_configuration
from corral.api.kinds.vmi.admission import is_component
from corral.api.kinds.vmi.vmi import GROUP
from corral.api.object import Document

_UNSUPPORTED: Final = "FieldValueNotSupported"
_DECENTRALIZED: Final = (
    "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"
)


def _add_metadata(document: Document) -> None:
    """Add the label and the finalizer of a new migration (KubeVirt's MigrationCreateMutator)."""
    metadata = document["metadata"]
    name = at(document, "spec", "vmiName")
    if name:
        metadata["labels"] = {**(metadata.get("labels") or {}), SELECTOR_LABEL: name}
    finalizers = metadata.get("finalizers") or []
    if FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, FINALIZER]


def _validate(document: Document, old: Document | None, user: str) -> Verdict:
    if old is not None:
        return Verdict(list(_update_causes(document, old)))
    return Verdict(list(_creation_causes(document["spec"], user)))


def _creation_causes(spec: Document, user: str) -> Iterator[Cause]:
    if not spec.get("vmiName"):
        yield Cause("spec.vmiName", "vmiName is missing", "FieldValueRequired")
    priority = spec.get("priority")
    if priority is not None and not is_component(user):
        # The name of the field is KubeVirt's mistake.
        message = "Migration priority queue, only virt-controller is allowed to set priority field"
        yield Cause("spec.migrationPriority", message, "FieldValueForbidden")
    elif priority not in PRIORITIES:
        supported = ", ".join(f'"{each}"' for each in PRIORITIES if each)
        message = f'Unsupported value: "{priority}": supported values: {supported}'
        yield Cause("spec.priority", f"spec.priority: {message}", _UNSUPPORTED)
    for name in ("sendTo", "receive"):
        if spec.get(name) is not None:
            yield Cause(f"spec.{name}", _DECENTRALIZED, _UNSUPPORTED)


def _update_causes(document: Document, old: Document) -> Iterator[Cause]:
    if document.get("spec") != old.get("spec"):
        yield Cause("spec", "update of Migration object's spec is restricted", _UNSUPPORTED)
    before = at(old, "metadata", "labels", SELECTOR_LABEL)
    if before is None or at(document, "status", "phase") in FINAL:
        return
    labels = at(document, "metadata", "labels")
    if labels is None:
        message = "selector label can't be removed from an in-flight migration"
        yield Cause("metadata.labels", message, _UNSUPPORTED)
    elif labels.get(SELECTOR_LABEL) != before:
        message = "selector label can't be modified on an in-flight migration"
        yield Cause("metadata.labels", message, _UNSUPPORTED)


def _validate_policy(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    settings = {name: value for name, value in spec.items() if name != "selectors"}
    try:
        _ = migration_configuration.read(settings)
    except ValueError as error:
        return Verdict([Cause("spec", f"spec: {error}")])
    before = at(old, "spec") or {}
    return Verdict(
        warnings=[
            f"spec.{name} has no effect in this version"
            for name in settings
            if name not in migration_configuration.EFFECTIVE and name not in before
        ]
    )


_STATE: Final = ("status", "migrationState")

MIGRATION = Kind(
    group=GROUP,
    plural="virtualmachineinstancemigrations",
    short=("vmim", "vmims"),
    categories=("all",),
    versions=(Version(name="v1"), Version(name="v1alpha3", deprecated=True)),
    view=VirtualMachineInstanceMigration,
    columns=(
        field("Phase", "status", "phase", description="phase of the migration"),
        field("VMI", "spec", "vmiName", description="the machine that migrates"),
        field("Source", *_STATE, "sourceNode", description="the node that it leaves"),
        field("Target", *_STATE, "targetNode", description="the node that it joins"),
        age(),
    ),
    default_create=_add_metadata,
    validate=_validate,
    webhook=Webhook(
        create=f"migration-create-validator.{GROUP}", update=f"migration-update-validator.{GROUP}"
    ),
)

MIGRATION_POLICY = Kind(
    group=POLICIES,
    plural="migrationpolicies",
    versions=(Version(name="v1alpha1"),),
    view=MigrationPolicy,
    namespaced=False,
    columns=(age(),),
    validate=_validate_policy,
    webhook=Webhook(
        create=f"migration-policy-validator.{GROUP}", update=f"migration-policy-validator.{GROUP}"
    ),
)

KINDS = (MIGRATION, MIGRATION_POLICY)
