"""A pool's template as it was: which VirtualMachines and machines are of an older one.  Pure.

What a VirtualMachine was made from is told by a label with the name of a ControllerRevision, which
holds the whole spec of the pool at that generation.
"""

from collections.abc import Collection, Mapping
from enum import Enum

import msgspec

from corral.api.kinds.kubevirt.pool import REVISION_LABEL, PoolTemplate, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.reconcile.objects import owner_reference


class Step(Enum):
    """What brings the machine of an up-to-date VirtualMachine up to date."""

    NOTHING = "it is"
    LABEL = "it is but for its label: only the VirtualMachine changed"
    RESTART = "its machine is made anew"
    RECREATE = "its disks changed: the VirtualMachine is made anew"


def name_of(pool: VirtualMachinePool) -> str:
    """The revision that holds the pool's present spec."""
    return f"{pool.metadata.name}-{pool.metadata.generation}"


def revision(pool: VirtualMachinePool) -> Document:
    """The ControllerRevision that holds the pool's present spec."""
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
        """``names`` of all revisions, and what those hold that were looked into."""
        self._pool = pool
        self._names = names
        self._templates = templates

    @property
    def holds_present(self) -> bool:
        """Whether there is a revision of the pool's present spec."""
        return name_of(self._pool) in self._names

    def is_outdated(self, vm: VirtualMachine) -> bool:
        """Whether a VirtualMachine was made from another template than today's."""
        name = vm.metadata.labels.get(REVISION_LABEL, "")
        return self._template(name) != self._pool.spec.virtual_machine_template

    def step(self, vm: VirtualMachine, machine: VirtualMachineInstance) -> Step:
        """What the machine of an up-to-date VirtualMachine needs."""
        wanted = vm.metadata.labels.get(REVISION_LABEL, "")
        present = machine.metadata.labels.get(REVISION_LABEL, "")
        new = self._template(wanted)
        if wanted == present or new is None:
            return Step.NOTHING
        old = self._template(present)
        if old is None:
            return Step.RESTART
        if old.spec.data_volume_templates != new.spec.data_volume_templates:
            return Step.RECREATE
        return Step.RESTART if _made_of(old) != _made_of(new) else Step.LABEL

    def unused(self, used: Collection[str]) -> list[str]:
        """The revisions whose name is not among these."""
        return [name for name in self._names if name not in used]

    def _template(self, name: str) -> PoolTemplate | None:
        """The pool's template as of a revision; None where that is not known any more."""
        if name == name_of(self._pool):
            return self._pool.spec.virtual_machine_template
        return self._templates.get(name)


def _made_of(template: PoolTemplate) -> tuple[object, ...]:
    """What decides what a machine is like: its own template, and what completes that."""
    spec = template.spec
    return spec.template, spec.instancetype, spec.preference
