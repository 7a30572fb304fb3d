"""Controller of evacuations: a migration for each VMI that is to leave its node.

It is deleted while it has not begun if the VMI is to stay: its user has cancelled the evacuation
(``evacuate/cancel``), or the node's drain is over.
"""

from lightkube.models.core_v1 import Node

from corral.api.errors import ApiError
from corral.api.kinds.kubevirt.installation import (
    KEY,
    KubeVirt,
    eviction_strategy,
    migration_settings,
)
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.migration_configuration import DRAIN_TAINT
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.evacuation.plan import (
    is_drained,
    is_to_leave,
    may_migrate,
    migration_of,
    to_cancel,
)
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_vmi, by_vmi_node
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

Migration = VirtualMachineInstanceMigration
VMI = VirtualMachineInstance

COMPONENT = "evacuation-controller"


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Evacuations(context)
    return Controller("evacuation", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Evacuations:
    """Caches and state of the controller; the keys are those of VMIs."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._vmis = context.informers.of(VMI)
        self._nodes = context.informers.of(Node)
        self._migrations = context.informers.of(Migration)
        self._installations = context.informers.of(KubeVirt)
        self.sources = (self._vmis, self._nodes, self._migrations, self._installations)
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self._vmis.index(by_vmi_node)
        self._migrations.index(by_vmi)
        self._vmis.handle(self._vmi_changed)
        self._nodes.handle(self._node_changed)
        self._migrations.handle(self._migration_changed)
        self._installations.handle(self._installation_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Create a migration of a VMI that is to leave its node, unless it has one.

        One that is not to leave any more stays, unless its migration has begun.
        """
        vmi = self._vmis.get(key)
        if vmi is None:
            return None
        node = self._nodes.get(Key("", vmi.status.node_name))
        if not is_to_leave(vmi, node, _taint(self._installations.get(KEY))):
            for migration in to_cancel(vmi, self._migrations.indexed(by_vmi, str(key))):
                await self._cancel(vmi, migration)
            return None
        if unmet := self._expectations.unmet_seconds(vmi.metadata.uid):
            return Result(unmet)
        default = eviction_strategy(self._installations.get(KEY))
        if may_migrate(vmi, self._migrations.indexed(by_vmi, str(key)), default):
            await self._migrate(vmi)
        return None

    async def _migrate(self, vmi: VMI) -> None:
        self._expectations.expect(vmi.metadata.uid, creations=1)
        try:
            migration = await self._client.create(Migration, migration_of(vmi))
        except ApiError as error:
            self._expectations.creation_observed(vmi.metadata.uid)
            text = f"Error creating a Migration: {error}"
            self._recorder.event(vmi, "Warning", "FailedCreate", text)
            raise
        text = f"Created Migration {migration.metadata.name}"
        self._recorder.event(vmi, "Normal", "SuccessfulCreate", text)

    async def _cancel(self, vmi: VMI, migration: Migration) -> None:
        name = migration.metadata.name
        try:
            await remove(self._client, Migration, migration.key, migration.metadata.uid)
        except ApiError as error:
            text = f"Error deleting Migration {name}: {error}"
            self._recorder.event(vmi, "Warning", "FailedDelete", text)
            raise
        text = f"Deleted Migration {name}: the evacuation was cancelled"
        self._recorder.event(vmi, "Normal", "SuccessfulDelete", text)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and (old is None or _concerns(old, new)) and self._may_act_on(new):
            self.queue.add(new.key)

    def _may_act_on(self, vmi: VMI) -> bool:
        """Report whether a VMI may have to leave its node, or has migrations: most never do.

        A node, migration or KubeVirt object that is cached later enqueues the VMIs it concerns.
        """
        if vmi.status.evacuation_node_name or self._migrations.indexed(by_vmi, str(vmi.key)):
            return True
        node = self._nodes.get(Key("", vmi.status.node_name))
        return bool(node is not None and node.spec and node.spec.taints)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        taint = _taint(self._installations.get(KEY))
        if new is not None and is_drained(new, taint) is not is_drained(old, taint):
            for vmi in self._vmis.indexed(by_vmi_node, key_of(new).name):
                self.queue.add(vmi.key)

    def _installation_changed(self, old: KubeVirt | None, new: KubeVirt | None) -> None:
        """Enqueue the VMIs that may have another eviction strategy, or a drained node, now."""
        if (eviction_strategy(old), _taint(old)) != (eviction_strategy(new), _taint(new)):
            for vmi in self._vmis.items():
                self.queue.add(vmi.key)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        changed = new or old
        assert changed is not None
        key = changed.vmi_key
        if old is None and (vmi := self._vmis.get(key)) is not None:
            self._expectations.creation_observed(vmi.metadata.uid)
        # Its creation counts as well: the VMI may be to stay since it was requested.
        if old is None or new is None or new.is_final:
            self.queue.add(key)


def _taint(installation: KubeVirt | None) -> str:
    """Return the key of the taint of drained nodes."""
    return migration_settings(installation).node_drain_taint_key or DRAIN_TAINT


def _concerns(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI may mean that it is to leave its node."""
    return (
        old.status.evacuation_node_name != new.status.evacuation_node_name
        or old.status.node_name != new.status.node_name
        or old.status.conditions != new.status.conditions
        or is_being_deleted(old) is not is_being_deleted(new)
    )
