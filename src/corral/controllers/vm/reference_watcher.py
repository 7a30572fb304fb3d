"""The references of VirtualMachines: instance types, preferences, KubeVirt's configuration."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from corral.api.instancetypes.matchers import INSTANCETYPE, MATCHERS
from corral.api.kind import Kind
from corral.api.kinds.kubevirt.installation import (
    CPU_RATIO,
    KEY,
    KubeVirt,
    cpu_allocation_ratio,
    live_updates,
    reference_policy,
)
from corral.api.kinds.kubevirt.instancetype_kinds import KINDS
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.live_update import LiveUpdateConfiguration
from corral.api.object import Key, Object
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informer
from corral.reconcile.workqueue import WorkQueue


class References:
    """Watches instance types, preferences and KubeVirt's configuration.

    ``vms`` are the VirtualMachines to enqueue, in ``queue``.
    """

    def __init__(
        self, context: ControllerContext, vms: Informer[VirtualMachine], queue: WorkQueue[Key]
    ) -> None:
        self._vms = vms
        self._queue = queue
        self._installations = context.informers.of(KubeVirt)
        self._installations.handle(self._installation_changed)
        self.sources: list[Informer[Any]] = [self._installations]
        vms.index(_references)
        for kind in KINDS:
            informer = context.informers.of(kind.view)
            informer.handle(partial(self._changed, kind))
            self.sources.append(informer)

    @property
    def policy(self) -> str:
        """Return how references are stored (``installation.POLICIES``)."""
        return reference_policy(self._installations.get(KEY))

    @property
    def live_updates(self) -> LiveUpdateConfiguration | None:
        """Return the room for live updates of new VMIs; None if changes wait for a start."""
        return live_updates(self._installations.get(KEY))

    @property
    def cpu_ratio(self) -> int:
        """Return the virtual CPUs per CPU of a node."""
        return cpu_allocation_ratio(self._installations.get(KEY), CPU_RATIO)

    def _changed(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            for vm in self._vms.indexed(_references, _index_key(kind, new.key)):
                self._queue.add(vm.key)

    def _installation_changed(self, old: KubeVirt | None, new: KubeVirt | None) -> None:
        if (live_updates(old) is None) != (live_updates(new) is None):
            for vm in self._vms.items():
                self._queue.add(vm.key)
        if reference_policy(old) == reference_policy(new):
            return
        for vm in self._vms.items():
            if vm.spec.instancetype is not None or vm.spec.preference is not None:
                self._queue.add(vm.key)


def _references(vm: VirtualMachine) -> list[str]:
    return list(_reference_keys(vm))


def _reference_keys(vm: VirtualMachine) -> Iterator[str]:
    for matcher in MATCHERS:
        reference = vm.spec.instancetype if matcher is INSTANCETYPE else vm.spec.preference
        kind = matcher.kind(reference.kind) if reference is not None else None
        if reference is not None and kind is not None:
            namespace = vm.metadata.namespace if kind.namespaced else ""
            yield _index_key(kind, Key(namespace, reference.name))


def _index_key(kind: Kind, key: Key) -> str:
    """Return a key that is unique among all kinds that may be referred to."""
    return f"{kind.plural}/{key}"
