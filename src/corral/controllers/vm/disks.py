"""The DataVolumes and claims of a VirtualMachine's disks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.cdi import permitted_clones
from corral.api.kinds.cdi.datavolume import ADOPT_CLAIM, DataVolume, DataVolumeTemplate
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.volumes import claims_of
from corral.api.object import Document
from corral.reconcile.objects import controller_uid, is_being_deleted, owner_reference

CREATED_BY = "kubevirt.io/created-by"
FAILED, PENDING = "Failed", "Pending"
READY_PHASES = frozenset({"Succeeded", "WaitForFirstConsumer", "PendingPopulation"})
"""Phases of a DataVolume that a VMI can start with."""
EXCEEDED_QUOTA = "ErrExceededQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """State of a VirtualMachine's disks."""

    failed: bool = False
    """A DataVolume failed."""
    provisioning: bool = False
    """A DataVolume is being created or filled."""
    unbound: bool = False
    """A claim is not bound."""


def names(vm: VirtualMachine) -> set[str]:
    """Return the names of the DataVolumes and claims that the VirtualMachine uses."""
    return {
        *claims_of(vm.spec.template.spec.volumes).values(),
        *(template.metadata.name for template in vm.spec.data_volume_templates),
    }


def disks(
    vm: VirtualMachine,
    data_volumes: Mapping[str, DataVolume],
    claims: Mapping[str, PersistentVolumeClaim],
) -> Disks:
    """Return the state of the disks, given existing DataVolumes and claims by name."""
    volumes = vm.spec.template.spec.volumes
    used = [
        data_volumes[volume.data_volume.name]
        for volume in volumes
        if volume.data_volume is not None and volume.data_volume.name in data_volumes
    ]
    failed = [each for each in used if has_failed(each)]
    used_claims = [claims[name] for name in claims_of(volumes).values() if name in claims]
    return Disks(
        failed=bool(failed),
        provisioning=any(each.status.phase not in READY_PHASES | {FAILED} for each in used),
        unbound=any((claim.status and claim.status.phase) != "Bound" for claim in used_claims),
    )


def has_failed(data_volume: DataVolume) -> bool:
    """Report whether a DataVolume failed, for good or until somebody acts."""
    if data_volume.status.phase == FAILED or exceeds_quota(data_volume):
        return True
    return any(
        each.type == "Running" and (each.status, each.reason) == ("False", "Error")
        for each in data_volume.status.conditions
    )


def exceeds_quota(data_volume: DataVolume) -> bool:
    """Report whether the claim of a DataVolume exceeds a quota."""
    return data_volume.status.phase == PENDING and any(
        each.reason == EXCEEDED_QUOTA for each in data_volume.status.conditions
    )


def are_ready(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> bool:
    """Report whether a VMI can start with the DataVolumes of the templates.

    The VMI is created only then, as in KubeVirt's vm.go: its pod waits only for volumes that others
    create.
    """
    return all(
        (found := data_volumes.get(template.metadata.name)) is not None
        and found.status.phase in READY_PHASES
        for template in vm.spec.data_volume_templates
    )


def missing(
    vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]
) -> Sequence[DataVolumeTemplate]:
    """Return the templates without a DataVolume."""
    return [
        template
        for template in vm.spec.data_volume_templates
        if template.metadata.name not in data_volumes
    ]


def orphans(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> Iterable[DataVolume]:
    """Yield DataVolumes that have the name of a template and no controller."""
    for template in vm.spec.data_volume_templates:
        found = data_volumes.get(template.metadata.name)
        if found is not None and not controller_uid(found) and not is_being_deleted(found):
            yield found


def foreign(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> Iterable[DataVolume]:
    """Yield DataVolumes that have the name of a template and another controller."""
    for template in vm.spec.data_volume_templates:
        found = data_volumes.get(template.metadata.name)
        if found is not None and controller_uid(found) not in ("", vm.metadata.uid):
            yield found


def data_volume(vm: VirtualMachine, template: DataVolumeTemplate) -> Document:
    """Return the DataVolume of a template (KubeVirt's CreateDataVolumeManifest)."""
    spec: dict[str, Any] = msgspec.to_builtins(template.spec)
    priority_class = vm.spec.template.spec.priority_class_name
    annotations = {ADOPT_CLAIM: "true", **template.metadata.annotations}
    if priority_class:
        spec.setdefault("priorityClassName", priority_class)
    return {
        "metadata": {
            "name": template.metadata.name,
            "namespace": vm.metadata.namespace,
            "labels": {**template.metadata.labels, CREATED_BY: vm.metadata.uid},
            "annotations": permitted_clones.inherited(annotations, vm.metadata.annotations),
            "ownerReferences": [owner_reference(vm)],
        },
        "spec": spec,
    }


def source_claim(vm: VirtualMachine, template: DataVolumeTemplate) -> tuple[str, str] | None:
    """Return namespace and name of the claim that a template clones; None for no clone."""
    source = template.spec.source.pvc if template.spec.source is not None else None
    return (source.namespace or vm.metadata.namespace, source.name) if source else None
