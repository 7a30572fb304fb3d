"""Controller of workload updates: migrates or evicts outdated VMIs, as the KubeVirt object says."""

from lightkube.models.core_v1 import Node, Pod

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.kubevirt.installation import (
    KEY,
    KubeVirt,
    migration_settings,
    update_strategy,
)
from corral.api.kinds.kubevirt.migration import (
    CRITICAL,
    WORKLOAD_UPDATE,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.kubevirt.workload_update import migration_of
from corral.api.kinds.vmi.derived import current_pod_name
from corral.api.kinds.vmi.launcher import OUTDATED_LABEL, is_outdated
from corral.api.kinds.vmi.live_migration import is_live_migratable
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.workload_update.plan import (
    Observed,
    is_obsolete,
    is_updatable,
    must_migrate,
    plan,
)
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.workqueue import WorkQueue

Migration = VirtualMachineInstanceMigration
VMI = VirtualMachineInstance

COMPONENT = "workload-update-controller"
SETTLE_SECONDS = 1.0
"""Time after a change until all VMIs are planned for once (KubeVirt's throttle: 5 s)."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = WorkloadUpdates(context)
    return Controller(
        "workload-update", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=1
    )


class WorkloadUpdates:
    """Caches and state of the controller; its one key is that of the KubeVirt object."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._vmis = context.informers.of(VMI)
        self._nodes = context.informers.of(Node)
        self._migrations = context.informers.of(Migration)
        self._installations = context.informers.of(KubeVirt)
        self.sources = (self._vmis, self._nodes, self._migrations, self._installations)
        self._client = context.client
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self._evicted_at = float("-inf")
        self._tried_at: dict[str, float] = {}
        self._vmis.index(_listed)
        self._vmis.handle(self._vmi_changed)
        self._migrations.handle(self._migration_changed)
        self._installations.handle(self._installation_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Count the outdated VMIs, and renew as many as may be renewed now.

        So are those that have to migrate for what is to be plugged into them.
        """
        installation = self._installations.get(key)
        if installation is None:
            return None
        outdated = [vmi for vmi in self._vmis.indexed(_listed, "") if self._is_outdated(vmi)]
        count = sum(self._runs_outdated(vmi) for vmi in outdated)
        await self._write_count(installation, count)
        errors = await for_each(self._obsolete(), self._abort)
        uids = {vmi.metadata.uid for vmi in outdated}
        self._tried_at = {uid: at for uid, at in self._tried_at.items() if uid in uids}
        planned = plan(
            Observed(
                outdated=outdated,
                migrations=tuple(self._migrations.items()),
                strategy=update_strategy(installation),
                parallel=migration_settings(installation).parallel_migrations_per_cluster or 0,
                evicted_at=self._evicted_at,
                tried_at=self._tried_at,
                now=self._monotonic(),
            )
        )
        if planned.evict:
            self._evicted_at = self._monotonic()
        errors += await for_each(planned.migrate, self._migrate)
        errors += await for_each(planned.evict, self._evict)
        delays = [planned.requeue_seconds, *map(self._unmet_seconds, planned.migrate)]
        if errors:
            raise errors[0]
        delay = min(filter(None, delays), default=0.0)
        return Result(delay) if delay else None

    def _unmet_seconds(self, vmi: VMI) -> float:
        """Return for how long a VMI waits at most until the cache shows its migration."""
        return self._expectations.unmet_seconds(vmi.metadata.uid)

    def _is_outdated(self, vmi: VMI) -> bool:
        """Report whether a VMI is to be renewed."""
        return is_updatable(vmi) and (self._runs_outdated(vmi) or must_migrate(vmi))

    def _runs_outdated(self, vmi: VMI) -> bool:
        """Report whether a VMI that is labelled so runs in an older launcher: the label may lag."""
        return is_outdated(vmi, self._nodes.get(Key("", vmi.status.node_name)))

    def _obsolete(self) -> list[Migration]:
        found = []
        for migration in self._migrations.items():
            vmi = self._vmis.get(migration.vmi_key)
            outdated = vmi is not None and self._is_outdated(vmi)
            if is_obsolete(migration, vmi, outdated=outdated):
                found.append(migration)
        return found

    async def _write_count(self, installation: KubeVirt, count: int) -> None:
        if installation.status.outdated_virtual_machine_instance_workloads != count:
            status = {"outdatedVirtualMachineInstanceWorkloads": count}
            key = installation.key
            await self._client.patch(KubeVirt, key, {"status": status}, subresource="status")

    async def _migrate(self, vmi: VMI) -> None:
        uid = vmi.metadata.uid
        if self._unmet_seconds(vmi):
            return
        self._expectations.expect(uid, creations=1)
        try:
            migration = await self._client.create(Migration, migration_of(vmi, CRITICAL))
        except ApiError as error:
            self._expectations.creation_observed(uid)
            text = f"Error creating a Migration for automated workload update: {error}"
            self._recorder.event(vmi, "Warning", "FailedCreate", text)
            raise
        text = f"Created Migration {migration.metadata.name} for automated workload update"
        self._recorder.event(vmi, "Normal", "SuccessfulCreate", text)

    async def _evict(self, vmi: VMI) -> None:
        """Evict the pod of a VMI; one that is refused is tried again with a later batch."""
        self._tried_at[vmi.metadata.uid] = self._monotonic()
        pod = Key(vmi.metadata.namespace, current_pod_name(vmi))
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
        }
        try:
            await self._client.post(Pod, pod, "eviction", eviction)
        except NotFound:
            return
        except ApiError as error:
            text = f"Error deleting VMI during automated workload update: {error}"
            self._recorder.event(vmi, "Warning", "FailedEvict", text)
            return
        text = "Initiated eviction of VMI as part of automated workload update"
        self._recorder.event(vmi, "Normal", "SuccessfulEvict", text)

    async def _abort(self, migration: Migration) -> None:
        await remove(self._client, Migration, migration.key, migration.metadata.uid)
        vmi = self._vmis.get(migration.vmi_key)
        if vmi is not None:
            text = f"Aborted change for vmi: {vmi.metadata.name}"
            self._recorder.event(vmi, "Normal", "SuccessfulChangeAbortion", text)

    # -- events -----------------------------------------------------------------------------

    def _plan_soon(self) -> None:
        self.queue.add_after(KEY, SETTLE_SECONDS)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if _aspects(old) != _aspects(new):
            self._plan_soon()

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        changed = new or old
        assert changed is not None
        if old is None and WORKLOAD_UPDATE in changed.metadata.annotations:
            vmi = self._vmis.get(changed.vmi_key)
            if vmi is not None:
                self._expectations.creation_observed(vmi.metadata.uid)
        if self._vmis.indexed(_listed, "") or WORKLOAD_UPDATE in changed.metadata.annotations:
            self._plan_soon()

    def _installation_changed(self, _old: KubeVirt | None, new: KubeVirt | None) -> None:
        if new is not None:
            self._plan_soon()


def _is_listed(vmi: VMI) -> bool:
    return OUTDATED_LABEL in vmi.metadata.labels or must_migrate(vmi)


def _aspects(vmi: VMI | None) -> tuple[bool, ...]:
    """Return what a plan depends on; the same for all VMIs that are not outdated."""
    if vmi is None or not _is_listed(vmi):
        return ()
    return is_updatable(vmi), is_live_migratable(vmi)


def _listed(vmi: VirtualMachineInstance) -> tuple[str, ...]:
    return ("",) if _is_listed(vmi) else ()
