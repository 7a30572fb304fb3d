"""Controller of migrations: acts on the plan, writes the VMI's migrationState and the status."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from lightkube.models.core_v1 import Namespace, Node, Pod

from corral.api.errors import AlreadyExists, ApiError, Forbidden, NotFound
from corral.api.kinds.core.machine_nodes import ANYWHERE, Placement, can_migrate_to
from corral.api.kinds.core.node_addresses import kubelet_port
from corral.api.kinds.kubevirt.installation import CPU_RATIO, KEY, migration_settings
from corral.api.kinds.kubevirt.migration import (
    EVACUATION,
    EVICTION_IN_PROGRESS,
    FAILED,
    FINALIZER,
    IN_PROGRESS_BY,
    TARGET_NODE,
    MigrationPolicy,
    VirtualMachineInstanceMigration,
    matching_policy,
)
from corral.api.kinds.vmi.derived import MIGRATION_UID, current_pod_name, target_pod_name
from corral.api.kinds.vmi.live_update import is_growing
from corral.api.kinds.vmi.migration_configuration import MigrationConfiguration, merged
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.vmi.launcher_template import LauncherTemplate
from corral.controllers.vmi.lifecycle import has_ended, node_of
from corral.controllers.vmi.migration import history, vmi_patches
from corral.controllers.vmi.migration.plan import Observed, Plan, plan
from corral.controllers.vmi.migration.queue_order import Candidate, startable
from corral.controllers.vmi.migration.status import status
from corral.controllers.vmi.migration.target_pod import target_pod
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.deletion import remove
from corral.reconcile.indexes import by_controller, by_vmi
from corral.reconcile.objects import (
    annotations_of,
    controller_of,
    controller_uid,
    is_being_deleted,
    key_of,
    labels_of,
    uid_of,
)
from corral.reconcile.workqueue import WorkQueue

Migration = VirtualMachineInstanceMigration
VMI = VirtualMachineInstance

COMPONENT = "virtualmachine-controller"
"""KubeVirt's migration controller shares the event recorder of VMIs."""
_QUOTA = "exceeded quota"


def controller(
    context: ControllerContext, *, cpu_ratio: int = CPU_RATIO, placement: Placement = ANYWHERE
) -> Controller[Key]:
    """Return the controller of migrations; the options are those of launcher pods."""
    loop = Migrations(context, cpu_ratio, placement)
    return Controller("migration", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Migrations:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext, cpu_ratio: int, placement: Placement) -> None:
        self.queue = WorkQueue[Key]()
        self.migrations = context.informers.of(Migration)
        self.vmis = context.informers.of(VMI)
        self.pods = context.informers.of(Pod)
        self._nodes = context.informers.of(Node)
        self._policies = context.informers.of(MigrationPolicy)
        self._namespaces = context.informers.of(Namespace)
        self._template = LauncherTemplate(context, self.queue, cpu_ratio, placement)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._waiting: dict[Key, str] = {}
        """Migrations that wait for a slot, and the node that each leaves."""
        self._created: set[str] = set()
        """Migrations, by uid, whose target pod was created, which the cache may not show."""
        self._handed_off: set[str] = set()
        """Migrations, by uid, that were handed off, which the cache may not show."""
        self.sources: tuple[Source, ...] = (
            *(self.migrations, self.vmis, self.pods, self._nodes, self._policies),
            *self._template.informers,
        )
        self.migrations.index(by_vmi)
        self.pods.index(by_controller)
        self.migrations.handle(self._migration_changed)
        self.vmis.handle(self._vmi_changed)
        self.pods.handle(self._pod_changed)
        self._template.installations.handle(lambda _old, _new: self._wake())

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one migration (KubeVirt's migration.go, execute)."""
        migration = self.migrations.get(key)
        if migration is None:
            return None
        observed = self._observe(migration)
        decided = plan(observed)
        delay, refused = decided.requeue_seconds, None
        if not decided.create_pod:
            self._stop_waiting(key)
        elif wait := self._backoff(observed):
            self._stop_waiting(key)
            delay = wait
        elif self._acquire_slot(observed):
            try:
                observed = replace(observed, target=await self._create_pod(observed))
                decided = plan(observed)
            except ApiError as error:
                refused = error
        await self._write_vmi(observed, decided)
        await self._write_status(observed, decided, refused)
        await self._clean_up(observed, decided)
        if refused is not None:
            raise refused
        return Result(delay) if delay > 0 else None

    def _observe(self, migration: Migration) -> Observed:
        vmi = self.vmis.get(migration.vmi_key)
        pods = self.pods.indexed(by_controller, vmi.metadata.uid) if vmi is not None else []
        named = {key_of(pod).name: pod for pod in pods}
        target = source = None
        if vmi is not None:
            target = named.get(target_pod_name(vmi, migration.metadata.uid))
            source = named.get(_source_name(migration, vmi))
        return Observed(
            migration=migration,
            vmi=vmi,
            source=source,
            target=target,
            handed_off=migration.metadata.uid in self._handed_off,
            taken=vmi is not None and self._is_taken(migration, vmi),
            blocked=any(not has_ended(pod) for pod in pods if pod not in (source, target))
            or self._has_older(migration),
            now=self._context.clock(),
        )

    def _others(self, migration: Migration) -> list[Migration]:
        """Return the other migrations of its VMI."""
        same = self.migrations.indexed(by_vmi, str(migration.vmi_key))
        return [each for each in same if each.metadata.uid != migration.metadata.uid]

    def _is_taken(self, migration: Migration, vmi: VMI) -> bool:
        """Report whether the VMI's migrationState is of another migration, which is not over."""
        return any(
            each.state_in(vmi) is not None and not each.is_final for each in self._others(migration)
        )

    def _has_older(self, migration: Migration) -> bool:
        """Report whether the VMI has an older migration that is not over."""
        others = [each for each in self._others(migration) if not each.is_final]
        return any(history.age(each) < history.age(migration) for each in others)

    # -- starting ---------------------------------------------------------------------------

    def _backoff(self, observed: Observed) -> float:
        """Return for how long a migration waits after failures of earlier ones."""
        migration, vmi = observed.migration, observed.vmi
        assert vmi is not None
        seconds = history.backoff_seconds(migration, self._others(migration), observed.now)
        if seconds:
            text = f"backoff migrating vmi {vmi.key}"
            self._recorder.event(vmi, "Warning", "MigrationBackoff", text)
        return seconds

    def _acquire_slot(self, observed: Observed) -> bool:
        """Report whether a migration may start now; else it waits for the end of another one."""
        key = observed.migration.key
        assert observed.vmi is not None
        self._waiting[key] = observed.vmi.status.node_name
        if key not in self._startable():
            return False
        del self._waiting[key]
        return True

    def _startable(self) -> set[Key]:
        """Return the migrations, of those that wait for a slot, that may start now."""
        candidates = [
            Candidate(migration, node)
            for each, node in self._waiting.items()
            if (migration := self.migrations.get(each)) is not None
        ]
        return startable(candidates, list(self._running()), self._settings())

    def _running(self) -> Iterable[str]:
        """Yield the source node of each migration that has a target pod."""
        for migration in self.migrations.items():
            vmi = self.vmis.get(migration.vmi_key)
            if migration.is_final or vmi is None or not self._has_target(migration, vmi):
                continue
            state = migration.state_in(vmi)
            yield state.source_node if state is not None else vmi.status.node_name

    def _has_target(self, migration: Migration, vmi: VMI) -> bool:
        name = target_pod_name(vmi, migration.metadata.uid)
        pod = self.pods.get(Key(migration.metadata.namespace, name))
        return pod is not None or migration.metadata.uid in self._created

    def _stop_waiting(self, key: Key) -> None:
        """Give up a place among those that wait, which may have kept others back."""
        if self._waiting.pop(key, None) is not None:
            self._wake()

    def _wake(self) -> None:
        """Enqueue the migrations that wait for a slot and may start now.

        Not all that wait: each sync evaluates all of them.
        """
        if self._waiting:
            for key in self._startable():
                self.queue.add(key)

    def _settings(self) -> MigrationConfiguration:
        return migration_settings(self._template.installations.get(KEY))

    async def _create_pod(self, observed: Observed) -> Pod:
        """Create the target pod.  Raises ApiError."""
        migration, vmi = observed.migration, observed.vmi
        assert vmi is not None
        launcher = self._template.pod(vmi, self._template.required_claims(vmi))
        document = target_pod(launcher, migration, vmi, self._excluded(vmi))
        name = document["metadata"]["name"]
        await self._mark_eviction(observed)
        self._created.add(migration.metadata.uid)
        try:
            pod = await self._client.create(Pod, document)
        except AlreadyExists:  # created before, by a request whose response was lost
            pod = await self._client.get(Pod, name, vmi.key.namespace)
            if controller_uid(pod) != vmi.metadata.uid:
                raise
        except ApiError as error:
            self._created.discard(migration.metadata.uid)
            self._wake()
            text = f"Error creating pod: {error}"
            self._recorder.event(vmi, "Warning", "FailedCreate", text)
            raise
        text = f"Created migration target pod {name}"
        self._recorder.event(migration, "Normal", "SuccessfulCreate", text)
        return pod

    async def _mark_eviction(self, observed: Observed) -> None:
        """Annotate the pod that a VMI is evacuated from, as KubeVirt does.

        The descheduler evicts no pod with the annotation again.
        """
        source = observed.source
        if source is None or EVACUATION not in observed.migration.metadata.annotations:
            return
        if EVICTION_IN_PROGRESS not in annotations_of(source):
            await self._annotate_eviction(source, IN_PROGRESS_BY)

    async def _unmark_eviction(self, observed: Observed) -> None:
        """Remove the annotation of a pod that the VMI has not left, unless it is to leave again."""
        source, migration = observed.source, observed.migration
        if source is None or migration.status.phase != FAILED or has_ended(source):
            return
        is_over = all(each.is_final for each in self._others(migration))
        if is_over and EVICTION_IN_PROGRESS in annotations_of(source):
            await self._annotate_eviction(source, None)

    async def _annotate_eviction(self, pod: Pod, value: str | None) -> None:
        """Set or remove the annotation of a pod.  Raises ApiError, but where the pod is gone."""
        metadata = {"uid": uid_of(pod), "annotations": {EVICTION_IN_PROGRESS: value}}
        with suppress(NotFound):
            await self._client.patch(Pod, key_of(pod), {"metadata": metadata})

    def _excluded(self, vmi: VMI) -> list[str]:
        """Return the nodes to which a VMI does not migrate: its own, and those that cannot."""
        source = self._nodes.get(Key("", vmi.status.node_name))
        unable = (node for node in self._nodes.items() if not can_migrate_to(source, node))
        return sorted({vmi.status.node_name, *(key_of(node).name for node in unable)})

    # -- writing ----------------------------------------------------------------------------

    async def _write_vmi(self, observed: Observed, decided: Plan) -> None:
        """Write the VMI's migrationState.  Raises ApiError, also Conflict if a node was first."""
        vmi, migration = observed.vmi, observed.migration
        if vmi is None:
            return
        if decided.fail_vmi:
            await self._client.patch(
                VMI,
                vmi.key,
                vmi_patches.failed(
                    vmi, decided.fail_vmi, observed.now, cancelled=observed.cancelled
                ),
            )
            text = (
                f"VirtualMachineInstance migration uid {migration.metadata.uid} failed. "
                f"reason: {decided.fail_vmi}"
            )
            self._recorder.event(vmi, "Warning", "FailedMigration", text)
        elif decided.abort:
            await self._client.patch(VMI, vmi.key, vmi_patches.abort_requested(vmi))
            text = "Migration is ready to be canceled by virt-handler."
            self._recorder.event(migration, "Normal", "SuccessfulAbortMigration", text)
        elif decided.complete_vmi:
            await self._client.patch(VMI, vmi.key, vmi_patches.completed(vmi, observed.now))
        elif decided.hand_off:
            await self._hand_off(observed)
        elif (node := self._unlabelled(observed)) and not migration.is_final:
            await self._client.patch(VMI, vmi.key, vmi_patches.labelled(vmi, node))

    def _unlabelled(self, observed: Observed) -> str:
        """Return the node that the target pod is bound to, if it cannot read the VMI yet.

        A node of another host reads no VMIs but those that carry its name.
        """
        vmi, target = observed.vmi, observed.target
        name = node_of(target) if target is not None else ""
        node = self._nodes.get(Key("", name)) if name and observed.state is None else None
        if vmi is None or node is None or not kubelet_port(node):
            return ""
        return name if vmi.metadata.labels.get(TARGET_NODE) != name else ""

    async def _hand_off(self, observed: Observed) -> None:
        """Hand the VMI to the target node, which prepares, and then the source, which migrates."""
        vmi, migration = observed.vmi, observed.migration
        if vmi is None or observed.source is None or observed.target is None:
            return
        policy, settings = self._resolve(vmi)
        document = vmi_patches.hand_off(
            vmi,
            migration,
            source=key_of(observed.source).name,
            target=key_of(observed.target).name,
            target_node=node_of(observed.target),
            policy=policy,
            settings=settings,
        )
        self._handed_off.add(migration.metadata.uid)
        try:
            await self._client.patch(VMI, vmi.key, document)
        except ApiError as error:
            self._handed_off.discard(migration.metadata.uid)
            text = f"Failed to set MigrationStat in VMI status. :{error}"
            self._recorder.event(migration, "Warning", "FailedHandOver", text)
            raise
        text = "Migration target pod is ready for preparation by virt-handler."
        self._recorder.event(migration, "Normal", "SuccessfulHandOver", text)

    def _resolve(self, vmi: VMI) -> tuple[MigrationPolicy | None, MigrationConfiguration]:
        """Return the policy of a VMI, and the settings that it and the cluster give."""
        namespace = self._namespaces.get(Key("", vmi.metadata.namespace))
        labels = labels_of(namespace) if namespace is not None else {}
        policy = matching_policy(self._policies.items(), vmi.metadata.labels, labels)
        settings = self._settings()
        return policy, settings if policy is None else merged(settings, policy.spec.settings)

    async def _write_status(
        self, observed: Observed, decided: Plan, refused: ApiError | None
    ) -> None:
        migration = observed.migration
        for report in decided.reports:
            self._recorder.event(migration, *report)
        no_quota = isinstance(refused, Forbidden) and _QUOTA in refused.message
        changed = status(
            migration,
            decided.passed,
            _shown_state(observed),
            observed.now,
            cancelled=is_being_deleted(migration),
            no_quota=no_quota,
        )
        if changed:
            version = migration.metadata.resource_version
            document = {"metadata": {"resourceVersion": version}, "status": changed}
            await self._client.patch(Migration, migration.key, document, subresource="status")

    async def _clean_up(self, observed: Observed, decided: Plan) -> None:
        """Delete the target pod if the plan says so; release and tidy what is over."""
        migration, vmi = observed.migration, observed.vmi
        if decided.delete_pod and observed.target is not None:
            await self._delete_pod(migration, observed.target, decided.delete_pod)
        if not migration.is_final:
            return
        await self._unmark_eviction(observed)
        self._created.discard(migration.metadata.uid)
        self._handed_off.discard(migration.metadata.uid)
        others = any(not each.is_final for each in self._others(migration))
        if vmi is not None and not others and TARGET_NODE in vmi.metadata.labels:
            await self._client.patch(VMI, vmi.key, vmi_patches.labelled(vmi, None))
        if FINALIZER in migration.metadata.finalizers:
            kept = [each for each in migration.metadata.finalizers if each != FINALIZER]
            version = migration.metadata.resource_version
            document = {"metadata": {"resourceVersion": version, "finalizers": kept or None}}
            await self._client.patch(Migration, migration.key, document)
        if vmi is None and not is_being_deleted(migration):
            await remove(self._client, Migration, migration.key, migration.metadata.uid)
        all_of_them = [*self._others(migration), migration]
        for old in history.expired(all_of_them):
            await self._expire(old)
        if vmi is not None and not vmi.is_final:
            pods = self.pods.indexed(by_controller, vmi.metadata.uid)
            for pod in history.left_behind(pods, current_pod_name(vmi), all_of_them):
                await remove(self._client, Pod, key_of(pod), uid_of(pod))

    async def _delete_pod(self, migration: Migration, pod: Pod, why: str) -> None:
        """Delete a target pod at once: no guest runs in it."""
        try:
            await remove(self._client, Pod, key_of(pod), uid_of(pod), grace_seconds=0)
        except ApiError as error:
            text = f"Error deleting canceled migration target pod: {error}"
            self._recorder.event(migration, "Warning", "FailedDelete", text)
            raise
        self._recorder.event(migration, "Normal", "SuccessfulDelete", why)

    async def _expire(self, migration: Migration) -> None:
        """Delete a migration that is over, and the pod that it has left behind."""
        key = Key(migration.metadata.namespace, history.old_pod(migration))
        pod = self.pods.get(key)
        if pod is not None and has_ended(pod):
            await remove(self._client, Pod, key, uid_of(pod))
        await remove(self._client, Migration, migration.key, migration.metadata.uid)

    # -- events -----------------------------------------------------------------------------

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        if new is not None:
            self.queue.add(new.key)
        if old is None or old.is_final or (new is not None and not new.is_final):
            return
        self._created.discard(old.metadata.uid)
        self._handed_off.discard(old.metadata.uid)
        _ = self._waiting.pop(old.key, None)
        self._wake()
        self._enqueue_of(old.vmi_key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changed = new or old
        assert changed is not None
        if old is None or new is None or _concerns(old, new):
            self._enqueue_of(changed.key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        changed = new or old
        assert changed is not None
        owner = controller_of(changed)
        concerns = MIGRATION_UID in labels_of(changed) or new is None or has_ended(new)
        if owner is not None and concerns:
            self._enqueue_of(Key(key_of(changed).namespace, owner.name))

    def _enqueue_of(self, vmi: Key) -> None:
        """Enqueue the migrations of a VMI that are not over, or have something left to do.

        All of them go with the VMI.
        """
        is_gone = self.vmis.get(vmi) is None
        for migration in self.migrations.indexed(by_vmi, str(vmi)):
            if is_gone or not migration.is_final or FINALIZER in migration.metadata.finalizers:
                self.queue.add(migration.key)


def _source_name(migration: Migration, vmi: VMI) -> str:
    """Return the pod that the VMI leaves, also when it has."""
    state = migration.state_in(vmi)
    return state.source_pod if state is not None else current_pod_name(vmi)


def _shown_state(observed: Observed) -> MigrationState | None:
    """Return the migrationState that a migration shows: until the hand-off what is known of it."""
    if observed.state is not None:
        return observed.state
    vmi, source, target = observed.vmi, observed.source, observed.target
    if vmi is None or source is None or target is None or observed.migration.is_final:
        return None
    return MigrationState(
        source_node=vmi.status.node_name,
        source_pod=key_of(source).name,
        target_node=node_of(target),
        target_pod=key_of(target).name,
    )


def _concerns(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI may change the plan of its migrations."""
    return (
        old.status.phase != new.status.phase
        or old.status.node_name != new.status.node_name
        or old.status.migration_state != new.status.migration_state
        or is_growing(old) is not is_growing(new)
        or is_being_deleted(old) is not is_being_deleted(new)
    )
