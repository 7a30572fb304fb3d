"""The DataVolumes and claims behind a VirtualMachine's disks.  Pure."""

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
SETTLED = frozenset({"Succeeded", "WaitForFirstConsumer", "PendingPopulation"})
"""Phases of a DataVolume that a machine can start with."""
EXCEEDED_QUOTA = "ErrExceededQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """How the disks of a VirtualMachine are."""

    failed: bool = False
    """A DataVolume cannot be filled."""
    provisioning: bool = False
    """A DataVolume is still being made or filled."""
    unbound: bool = False
    """A claim has no volume yet."""


def names(vm: VirtualMachine) -> set[str]:
    """Every DataVolume and claim whose state is of interest."""
    return {
        *claims_of(vm.spec.template.spec.volumes).values(),
        *(template.metadata.name for template in vm.spec.data_volume_templates),
    }


def disks(
    vm: VirtualMachine,
    data_volumes: Mapping[str, DataVolume],
    claims: Mapping[str, PersistentVolumeClaim],
) -> Disks:
    """How the disks are, given the DataVolumes and claims that there are, by name."""
    volumes = vm.spec.template.spec.volumes
    used = [
        data_volumes[volume.data_volume.name]
        for volume in volumes
        if volume.data_volume is not None and volume.data_volume.name in data_volumes
    ]
    failed = [each for each in used if has_failed(each)]
    held = [claims[name] for name in claims_of(volumes).values() if name in claims]
    return Disks(
        failed=bool(failed),
        provisioning=any(each.status.phase not in SETTLED | {FAILED} for each in used),
        unbound=any((claim.status and claim.status.phase) != "Bound" for claim in held),
    )


def has_failed(data_volume: DataVolume) -> bool:
    """Whether a DataVolume is in trouble: for good, or until something is mended."""
    if data_volume.status.phase == FAILED or exceeds_quota(data_volume):
        return True
    return any(
        each.type == "Running" and (each.status, each.reason) == ("False", "Error")
        for each in data_volume.status.conditions
    )


def exceeds_quota(data_volume: DataVolume) -> bool:
    """Whether there is no room for what it asks for."""
    return data_volume.status.phase == PENDING and any(
        each.reason == EXCEEDED_QUOTA for each in data_volume.status.conditions
    )


def are_settled(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> bool:
    """Whether a machine can start with the DataVolumes that are made for it.

    Before that none is made, as in KubeVirt's vm.go: its pod waits only for volumes that others
    have made.
    """
    return all(
        (found := data_volumes.get(template.metadata.name)) is not None
        and found.status.phase in SETTLED
        for template in vm.spec.data_volume_templates
    )


def missing(
    vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]
) -> Sequence[DataVolumeTemplate]:
    """The templates of which no DataVolume was made yet."""
    return [
        template
        for template in vm.spec.data_volume_templates
        if template.metadata.name not in data_volumes
    ]


def orphans(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> Iterable[DataVolume]:
    """DataVolumes that have a template's name and belong to nobody: left by an earlier life."""
    for template in vm.spec.data_volume_templates:
        found = data_volumes.get(template.metadata.name)
        if found is not None and not controller_uid(found) and not is_being_deleted(found):
            yield found


def foreign(vm: VirtualMachine, data_volumes: Mapping[str, DataVolume]) -> Iterable[DataVolume]:
    """DataVolumes that have a template's name and belong to somebody else."""
    for template in vm.spec.data_volume_templates:
        found = data_volumes.get(template.metadata.name)
        if found is not None and controller_uid(found) not in ("", vm.metadata.uid):
            yield found


def data_volume(vm: VirtualMachine, template: DataVolumeTemplate) -> Document:
    """The DataVolume that a template makes (KubeVirt's CreateDataVolumeManifest)."""
    spec: dict[str, Any] = msgspec.to_builtins(template.spec)
    importance = vm.spec.template.spec.priority_class_name
    annotations = {ADOPT_CLAIM: "true", **template.metadata.annotations}
    if importance:
        spec.setdefault("priorityClassName", importance)
    return {
        "metadata": {
            "name": template.metadata.name,
            "namespace": vm.metadata.namespace,
            "labels": {**template.metadata.labels, CREATED_BY: vm.metadata.uid},
            "annotations": permitted_clones.handed_on(annotations, vm.metadata.annotations),
            "ownerReferences": [owner_reference(vm)],
        },
        "spec": spec,
    }


def source_claim(vm: VirtualMachine, template: DataVolumeTemplate) -> tuple[str, str] | None:
    """Namespace and name of the claim that a template copies, if it copies one."""
    copied = template.spec.source.pvc if template.spec.source is not None else None
    return (copied.namespace or vm.metadata.namespace, copied.name) if copied else None
