"""Revisions of a pool's template: which VirtualMachines and VMIs are outdated. Pure.

A label names the ControllerRevision that a VirtualMachine was created from; the revision holds the
whole spec of the pool at that generation.
"""

from collections.abc import Collection, Mapping
from enum import Enum

import msgspec

from corral.api.kinds.kubevirt.pool import REVISION_LABEL, PoolTemplate, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import (
    RESTART_REQUIRED,
    VirtualMachine,
    generation,
)
from corral.api.kinds.vmi.live_update import (
    MEMORY_CHANGE,
    VCPU_CHANGE,
    has_condition,
    is_live_change,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.reconcile.objects import owner_reference


class Step(Enum):
    """The action that brings the VMI of an up-to-date VirtualMachine up to date."""

    NOTHING = "nothing: it is up to date, or becomes so while it runs"
    LABEL = "set the label: only the VirtualMachine changed"
    RESTART = "recreate the VMI"
    RECREATE = "recreate the VirtualMachine: its disks changed"


def name_of(pool: VirtualMachinePool) -> str:
    """Return the name of the revision of the pool's current spec."""
    return f"{pool.metadata.name}-{pool.metadata.generation}"


def revision(pool: VirtualMachinePool) -> Document:
    """Return the ControllerRevision of the pool's current spec."""
    return {
        "metadata": {
            "name": name_of(pool),
            "namespace": pool.metadata.namespace,
            "ownerReferences": [owner_reference(pool)],
        },
        "data": msgspec.to_builtins(pool.spec),
        "revision": pool.metadata.generation,
    }


class History:
    """The revisions of one pool."""

    def __init__(
        self,
        pool: VirtualMachinePool,
        names: Collection[str],
        templates: Mapping[str, PoolTemplate],
    ) -> None:
        """``names`` are those of all revisions; ``templates`` those of the revisions read."""
        self._pool = pool
        self._names = names
        self._templates = templates

    @property
    def has_current(self) -> bool:
        """Report whether the revision of the pool's current spec exists."""
        return name_of(self._pool) in self._names

    def is_outdated(self, vm: VirtualMachine) -> bool:
        """Report whether a VirtualMachine was created from another template than the current."""
        name = vm.metadata.labels.get(REVISION_LABEL, "")
        return self._template(name) != self._pool.spec.virtual_machine_template

    def step(self, vm: VirtualMachine, vmi: VirtualMachineInstance) -> Step:
        """Return what the VMI of an up-to-date VirtualMachine needs."""
        desired = vm.metadata.labels.get(REVISION_LABEL, "")
        observed = vmi.metadata.labels.get(REVISION_LABEL, "")
        new = self._template(desired)
        if desired == observed or new is None:
            return Step.NOTHING
        old = self._template(observed)
        if old is None:
            return Step.RESTART
        if old.spec.data_volume_templates != new.spec.data_volume_templates:
            return Step.RECREATE
        if _vmi_fields(old) == _vmi_fields(new):
            return Step.LABEL
        return _live_step(vm, vmi) if _is_live_change(old, new) else Step.RESTART

    def unused(self, used: Collection[str]) -> list[str]:
        """Return the revisions that are not in ``used``."""
        return [name for name in self._names if name not in used]

    def _template(self, name: str) -> PoolTemplate | None:
        """Return the pool's template in a revision; None if it is not available any more."""
        if name == name_of(self._pool):
            return self._pool.spec.virtual_machine_template
        return self._templates.get(name)


def _is_live_change(old: PoolTemplate, new: PoolTemplate) -> bool:
    """Report whether the VM controller may bring the change to a VMI while that runs.

    Whether it does depends on the KubeVirt object, and on the instance type, which may be another.
    """
    before, after = old.spec.template, new.spec.template
    return (
        before.metadata == after.metadata
        and old.spec.preference == new.spec.preference
        and is_live_change(before.spec, after.spec)
    )


def _live_step(vm: VirtualMachine, vmi: VirtualMachineInstance) -> Step:
    """Return the step that follows from what the VM controller has made of a change."""
    if has_restart_required(vm):
        return Step.RESTART
    is_matched = generation(vmi) == vm.metadata.generation
    return Step.LABEL if is_matched and not is_growing(vmi) else Step.NOTHING


def has_restart_required(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine has the condition RestartRequired."""
    return any(
        each.type == RESTART_REQUIRED and each.status == "True" for each in vm.status.conditions
    )


def is_growing(vmi: VirtualMachineInstance) -> bool:
    """Report whether sockets or memory are being plugged into a VMI."""
    return any(has_condition(vmi, each) for each in (VCPU_CHANGE, MEMORY_CHANGE))


def _vmi_fields(template: PoolTemplate) -> tuple[object, ...]:
    """Return the fields that determine a VMI: its template, and what completes it."""
    spec = template.spec
    return spec.template, spec.instancetype, spec.preference
