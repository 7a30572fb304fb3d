"""Controller of warm pools: makes spares, replaces those that are handed out, writes status."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from lightkube.models.core_v1 import Node

from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.kinds.core.node_pressure import DISK_PRESSURE, pressures
from corral.api.kinds.core.node_taints import ready_status
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.corral.spare_state import SPARE_STATE, is_paused_spare
from corral.api.kinds.corral.warm_pool import (
    FROM_CHECKPOINT,
    FROM_WARM_POOL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.installation import KubeVirt, live_updates
from corral.api.kinds.kubevirt.pool import REVISION_LABEL, VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import (
    ReplicaSetTemplate,
    VirtualMachineInstanceReplicaSet,
)
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.fork_state import forked, has_booted_instead
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.controllers.warmpool.checkpoint_plan import (
    IN_PROGRESS,
    SOURCE_STARTING,
    CheckpointPlan,
    is_settled,
    not_supported,
    plan_checkpoint,
)
from corral.controllers.warmpool.checkpoint_writes import CheckpointWrites
from corral.controllers.warmpool.plan import (
    Leaving,
    Plan,
    made_of,
    new_source,
    new_spare,
    plan,
    switched,
)
from corral.controllers.warmpool.status import (
    BACK_OFF,
    CHECKPOINT_READY,
    TARGET_NOT_FOUND,
    Reason,
    changed,
    reason,
)
from corral.metrics import Family, counter, gauge
from corral.reconcile.batch import for_each, slow_start_batch
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import controller_of, controller_uid, is_being_deleted
from corral.reconcile.ownership import adopt, release
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.replicas import is_active, is_ready
from corral.reconcile.spares import Spares, pool_labels, template_hash
from corral.reconcile.start_backoff import Backoff, Streak
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance
WarmPool = VirtualMachineWarmPool
Checkpoint = VirtualMachineCheckpoint
ReplicaSet = VirtualMachineInstanceReplicaSet

COMPONENT = "virtualmachinewarmpool-controller"
BATCH_SECONDS = 0.05
"""Delay of events that only change counts in the status, so that they are handled together."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = WarmPools(context)
    return Controller(
        "warmpool",
        loop.reconcile,
        queue=loop.queue,
        sources=(
            *(loop.spares.pools, loop.spares.sets, loop.spares.vm_pools),
            *(loop.spares.installations, loop.spares.vmis, loop.checkpoints, loop.nodes),
        ),
        families=loop.families,
    )


class WarmPools:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.spares = Spares(context)
        self.checkpoints = self.spares.checkpoints
        self.nodes = context.informers.of(Node)
        self._writes = CheckpointWrites(context.client)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self._backoff = Backoff()
        self._handed_out: Counter[tuple[Key, str]] = Counter()
        """Spares handed out, by pool and kind of the new owner."""
        self._created: Counter[Key] = Counter()
        self.spares.vmis.index(_labelled)
        self.spares.vmis.index(_origin)
        self.spares.vmis.index(_by_checkpoint)
        self.spares.pools.handle(self._pool_changed)
        self.spares.sets.handle(self._set_changed)
        self.spares.vm_pools.handle(self._vm_pool_changed)
        self.spares.installations.handle(self._installation_changed)
        self.checkpoints.index(by_controller)
        self.checkpoints.handle(self._checkpoint_changed)
        self.nodes.handle(self._node_changed)
        self.spares.vmis.handle(self._vmi_changed)
        retry_on_quota_increase(context, self.queue)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one warm pool.  The spares of one that is deleted go with it, as its dependents."""
        pool = self.spares.pools.get(key)
        if pool is None or is_being_deleted(pool):
            return None
        template = self.spares.template(pool)
        digest = None if template is None else template_hash(template)
        owned = await self._claim(pool, digest)
        delay, streak = self._backoff_delay(pool, owned, digest)
        unmet = self._expectations.unmet_seconds(pool.metadata.uid)
        now = self._context.clock()
        checkpoint = self._plan_checkpoint(pool, owned, digest)
        decided = plan(pool, owned, digest, now, checkpoint=checkpoint, backing_off=delay > 0)
        errors: list[ApiError] = []
        if not unmet:
            errors = await self._execute(pool, decided, template, checkpoint)
            errors += await self._switch(pool, decided.switch)
            errors += await self._writes.execute(pool, checkpoint)
        refused = [each for each in errors if not isinstance(each, Conflict)]
        why = reason(
            pool,
            decided,
            has_template=template is not None,
            errors=refused,
            streak=streak,
            owned=owned,
            checkpoint=checkpoint,
        )
        await self._update_status(pool, decided, why, checkpoint)
        if errors:
            raise errors[0]
        delays = [each for each in (delay, unmet, decided.next_seconds or 0.0) if each > 0]
        return Result(min(delays)) if delays else None

    def _plan_checkpoint(
        self, pool: WarmPool, owned: Sequence[VMI], digest: str | None
    ) -> CheckpointPlan:
        made = self.checkpoints.indexed(by_controller, pool.metadata.uid)
        if why := self.spares.obstacle(pool):
            target = pool.spec.target_ref
            assert target is not None
            return not_supported(owned, made, digest, f"{target.kind} {target.name}: {why}")
        return plan_checkpoint(
            pool,
            owned,
            made,
            digest,
            self._context.clock(),
            forks=self._forks(pool, made),
            serves=self._serves,
            has_disk_pressure=self._has_disk_pressure(),
        )

    async def _claim(self, pool: WarmPool, digest: str | None) -> list[VMI]:
        """Adopt spares without an owner, as of a deleted pool of this name; return all spares.

        Those of another template would be deleted at once, and may be somebody's whose labels are
        wrong.  A VMI that a user took the label from is released: it belongs to nobody then.
        """
        name, uid = pool.metadata.name, pool.metadata.uid
        owned, strays = list[VMI](), list[VMI]()
        for vmi in self.spares.owned(pool):
            is_labelled = vmi.metadata.labels.get(WARM_POOL_LABEL) == name
            (owned if is_labelled else strays).append(vmi)
        if strays:
            await release(self._client, uid, strays)
        labelled = self.spares.vmis.indexed(_labelled, str(pool.key))
        orphans = [
            vmi
            for vmi in labelled
            if made_of(vmi) == digest and not (controller_uid(vmi) or is_being_deleted(vmi))
        ]
        return owned + await adopt(self._client, pool, orphans)

    def _backoff_delay(
        self, pool: WarmPool, owned: Sequence[VMI], digest: str | None
    ) -> tuple[float, Streak | None]:
        now, uid = self._context.monotonic(), pool.metadata.uid
        for vmi in owned:
            if vmi.is_final:
                self._backoff.record(uid, digest or "", vmi, now)
        return self._backoff.delay(uid, digest or "", pool.spec.replicas, now)

    # -- acting -----------------------------------------------------------------------------

    async def _execute(
        self,
        pool: WarmPool,
        decided: Plan,
        template: ReplicaSetTemplate | None,
        checkpoint: CheckpointPlan,
    ) -> list[ApiError]:
        created = decided.create + decided.create_source
        if not created and not decided.delete:
            return []
        self._expectations.expect(
            pool.metadata.uid,
            creations=created,
            deletions=[leaving.vmi.metadata.uid for leaving in decided.delete],
        )
        errors: list[ApiError] = []
        if template is not None and created:
            errors = await self._create(pool, decided, template, checkpoint)
        return errors + await self._delete(pool, decided.delete)

    async def _create(
        self,
        pool: WarmPool,
        decided: Plan,
        template: ReplicaSetTemplate,
        checkpoint: CheckpointPlan,
    ) -> list[ApiError]:
        target, uid = self.spares.target(pool), pool.metadata.uid
        # Named as its target names its VMIs, whose equal a spare becomes.
        prefix = f"{pool.metadata.name}-" if target is None else target.metadata.name
        digest = template_hash(template)
        spare = new_spare(
            pool, template, prefix=prefix, digest=digest, checkpoint=checkpoint.usable
        )
        source = new_source(pool, template, prefix=prefix, digest=digest)
        documents = [source] * decided.create_source + [spare] * decided.create

        async def create(document: Document) -> None:
            try:
                created = await self._client.create(VMI, document)
            except ApiError as error:
                self._expectations.creation_observed(uid)
                message = f"Error creating spare: {error}"
                self._recorder.event(pool, "Warning", "FailedCreate", message)
                raise
            self._created[pool.key] += 1
            message = f"Created spare {created.metadata.name}"
            self._recorder.event(pool, "Normal", "SuccessfulCreate", message)

        tried, errors = await slow_start_batch(documents, create)
        self._expectations.creation_observed(uid, len(documents) - tried)
        return errors

    async def _switch(self, pool: WarmPool, spares: Sequence[VMI]) -> list[ApiError]:
        """Have spares paused, or run on; one that is gone meanwhile is left out."""

        async def switch(spare: VMI) -> None:
            with suppress(NotFound):
                await self._client.patch(VMI, spare.key, switched(pool, spare))

        return await for_each(spares, switch)

    async def _delete(self, pool: WarmPool, spares: Sequence[Leaving]) -> list[ApiError]:
        async def delete(leaving: Leaving) -> None:
            vmi, why = leaving
            metadata = vmi.metadata
            try:
                # By version: one that is handed out meanwhile is no spare any more.
                version = metadata.resource_version
                deleted = await remove(self._client, VMI, vmi.key, metadata.uid, version=version)
            except ApiError as error:
                self._expectations.deletion_observed(pool.metadata.uid, metadata.uid)
                if not isinstance(error, Conflict):
                    message = f"Error deleting spare {metadata.name}: {error}"
                    self._recorder.event(pool, "Warning", "FailedDelete", message)
                raise
            if deleted:
                message = f"Deleted spare {metadata.name}: {why}"
                self._recorder.event(pool, "Normal", "SuccessfulDelete", message)
            else:
                self._expectations.deletion_observed(pool.metadata.uid, metadata.uid)

        return await for_each(spares, delete)

    # -- status -----------------------------------------------------------------------------

    async def _update_status(
        self, pool: WarmPool, decided: Plan, why: Reason, checkpoint: CheckpointPlan
    ) -> None:
        claimed = len(self.spares.vmis.indexed(_origin, str(pool.key)))
        now = rfc3339(self._context.clock())
        status = changed(pool, decided, why, claimed=claimed, now=now, checkpoint=checkpoint)
        if status is None:
            return
        before = {each.reason for each in pool.status.conditions}
        if why.reason not in before and why.reason in (BACK_OFF, TARGET_NOT_FOUND):
            self._recorder.event(pool, "Warning", why.reason, why.message)
        self._report_checkpoint(pool, checkpoint)
        await self._client.patch(WarmPool, pool.key, {"status": status}, subresource="status")

    def _report_checkpoint(self, pool: WarmPool, checkpoint: CheckpointPlan) -> None:
        """Record an event when a checkpoint is complete, or cannot be used."""
        before = {each.reason for each in pool.status.conditions if each.type == CHECKPOINT_READY}
        usable, text = checkpoint.usable, checkpoint.message
        if usable is not None and usable.metadata.name != pool.status.checkpoint:
            self._recorder.event(pool, "Normal", "CheckpointComplete", text)
        is_fault = checkpoint.reason not in {"", IN_PROGRESS, SOURCE_STARTING}
        if usable is None and is_fault and checkpoint.reason not in before:
            self._recorder.event(pool, "Warning", checkpoint.reason, text)

    def _forks(self, pool: WarmPool, made: Iterable[Checkpoint]) -> Iterator[VMI]:
        """Iterate over the VMIs of a pool and its target that were to start from a checkpoint.

        Others may differ from the template, and so have booted instead.
        """
        target = self.spares.target(pool)
        owners = {pool.metadata.uid, target.metadata.uid if target is not None else ""}
        for checkpoint in made:
            for vmi in self.spares.vmis.indexed(_by_checkpoint, str(checkpoint.key)):
                if controller_uid(vmi) in owners or _is_member(vmi, target):
                    yield vmi

    def _serves(self, name: str) -> bool:
        """Report whether machines can start on a node."""
        node = self.nodes.get(Key("", name))
        return node is not None and _serves(node)

    def _has_disk_pressure(self) -> bool:
        """Report whether each node on which machines can start is short of disk space."""
        serving = list(filter(_serves, self.nodes.items()))
        return bool(serving) and all(DISK_PRESSURE in pressures(node) for node in serving)

    def families(self) -> Iterable[Family]:
        """Return the metrics of warm pools; none where there are none."""
        pools = list(self.spares.pools.items())
        if not pools:
            return ()
        spares = gauge("corral_warm_pool_spares", "Spares of a warm pool.")
        ready = gauge("corral_warm_pool_spares_ready", "Spares that may be handed out.")
        desired = gauge("corral_warm_pool_spares_desired", "Desired spares of a warm pool.")
        refills = counter("corral_warm_pool_refills_total", "Spares that were created.")
        handed_out = counter(
            "corral_warm_pool_hand_outs_total", "Spares handed out, by kind of the new owner."
        )
        for pool in pools:
            labels = pool_labels(pool.key)
            spares.add(pool.status.replicas, labels)
            ready.add(pool.status.ready_replicas, labels)
            desired.add(pool.spec.replicas, labels)
            refills.add(self._created[pool.key], labels)
        for (key, kind), count in self._handed_out.items():
            handed_out.add(count, {**pool_labels(key), "kind": kind})
        return spares, ready, desired, refills, handed_out

    # -- event handlers ---------------------------------------------------------------------

    def _pool_changed(self, old: WarmPool | None, new: WarmPool | None) -> None:
        if new is None:
            assert old is not None
            self._backoff.forget(old.metadata.uid)
            self._created.pop(old.key, None)
            for address in [each for each in self._handed_out if each[0] == old.key]:
                del self._handed_out[address]
        elif old is None or old.spec != new.spec:
            self.queue.add(new.key)
        else:
            self.queue.add_after(new.key, BATCH_SECONDS)  # most often our own status

    def _checkpoint_changed(self, old: Checkpoint | None, new: Checkpoint | None) -> None:
        checkpoint = new or old
        owner = None if checkpoint is None else controller_of(checkpoint)
        if checkpoint is not None and owner is not None and owner.kind == WarmPool.kind:
            self.queue.add(Key(checkpoint.metadata.namespace, owner.name))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        before, now = (_use_of(node) for node in (old, new))
        for pool in self.spares.pools.items() if before != now else ():
            if pool.spec.start_from == FROM_CHECKPOINT:
                self.queue.add(pool.key)

    def _set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        changed_set = new or old
        assert changed_set is not None
        if (
            old is not None
            and new is not None
            and old.spec.template == new.spec.template
            and is_being_deleted(old) is is_being_deleted(new)
        ):
            return
        for pool in self.spares.pools_of(changed_set):
            self.queue.add(pool.key)

    def _vm_pool_changed(
        self, old: VirtualMachinePool | None, new: VirtualMachinePool | None
    ) -> None:
        changed_pool = new or old
        assert changed_pool is not None
        if old is not None and new is not None and _template_of(old) == _template_of(new):
            return
        for pool in self.spares.pools_of(changed_pool):
            self.queue.add(pool.key)

    def _installation_changed(self, old: KubeVirt | None, new: KubeVirt | None) -> None:
        """Sync the warm pools of VirtualMachines: their VMIs have room for live updates."""
        for pool in self.spares.pools.items() if live_updates(old) != live_updates(new) else ():
            if isinstance(self.spares.target(pool), VirtualMachinePool):
                self.queue.add(pool.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and has_booted_instead(new) and not (old and has_booted_instead(old)):
            checkpoint = Key(new.metadata.namespace, starts_from(new))
            self._checkpoint_changed(None, self.checkpoints.get(checkpoint))
        keys = {key for vmi in (old, new) if vmi is not None and (key := _pool_key(vmi))}
        if not keys or (old is not None and new is not None and not _affects_pool(old, new)):
            return
        if old is not None and new is not None and _is_handed_out(old, new):
            self._record_hand_out(new)
        for key in keys:
            self._observe(key, old, new)
            lost = old is not None and _is_spare(old) and (new is None or not _is_spare(new))
            if lost or (new is not None and not is_active(new)):
                self.queue.add(key)
            else:
                self.queue.add_after(key, BATCH_SECONDS)

    def _observe(self, key: Key, old: VMI | None, new: VMI | None) -> None:
        """Count what the pool expected to see."""
        pool = self.spares.pools.get(key)
        if pool is None:
            return
        if old is None and new is not None and controller_uid(new) == pool.metadata.uid:
            self._expectations.creation_observed(pool.metadata.uid)
        if old is not None and (new is None or is_being_deleted(new) or not _is_spare(new)):
            self._expectations.deletion_observed(pool.metadata.uid, old.metadata.uid)

    def _record_hand_out(self, vmi: VMI) -> None:
        key, owner = _pool_key(vmi), controller_of(vmi)
        pool = None if key is None else self.spares.pools.get(key)
        if pool is None or owner is None:
            return
        self._handed_out[pool.key, owner.kind] += 1
        message = f"Handed out {vmi.metadata.name} to {owner.kind} {owner.name}"
        self._recorder.event(pool, "Normal", "HandedOut", message)


def _use_of(node: Node | None) -> tuple[bool, bool]:
    """Return whether pods can be bound to a node, and whether it is short of disk space."""
    return (False, False) if node is None else (_serves(node), DISK_PRESSURE in pressures(node))


def _serves(node: Node) -> bool:
    """Report whether pods can be bound to a node."""
    return ready_status(node) == "True" and not (node.spec and node.spec.unschedulable)


def _is_member(vmi: VMI, target: ReplicaSet | VirtualMachinePool | None) -> bool:
    """Report whether a VMI is that of a VirtualMachine which a pool has made."""
    owner, revision = controller_of(vmi), vmi.metadata.labels.get(REVISION_LABEL, "")
    return (
        isinstance(target, VirtualMachinePool)
        and owner is not None
        and owner.kind == VirtualMachine.kind
        and revision.rpartition("-")[0] == target.metadata.name
    )


def _template_of(pool: VirtualMachinePool) -> tuple[object, ...]:
    """Return what decides on the VMIs of a pool's members, and whether they are made at all."""
    spec = pool.spec
    return spec.virtual_machine_template.spec, spec.name_generation, is_being_deleted(pool)


def _is_spare(vmi: VMI) -> bool:
    return WARM_POOL_LABEL in vmi.metadata.labels


def _is_handed_out(old: VMI, new: VMI) -> bool:
    return _is_spare(old) and not _is_spare(new) and FROM_WARM_POOL in new.metadata.annotations


def _pool_key(vmi: VMI) -> Key | None:
    """Return the pool of a spare, or the one that a VMI comes from."""
    metadata = vmi.metadata
    name = metadata.labels.get(WARM_POOL_LABEL) or metadata.annotations.get(FROM_WARM_POOL)
    return Key(metadata.namespace, name) if name else None


def _labelled(vmi: VMI) -> Sequence[str]:
    """Return the pool that a VMI is labelled with, whoever controls it."""
    name = vmi.metadata.labels.get(WARM_POOL_LABEL)
    return (str(Key(vmi.metadata.namespace, name)),) if name else ()


def _origin(vmi: VMI) -> Sequence[str]:
    """Return the pool that a VMI was handed out by."""
    name = vmi.metadata.annotations.get(FROM_WARM_POOL)
    if not name or _is_spare(vmi) or is_being_deleted(vmi):
        return ()
    return (str(Key(vmi.metadata.namespace, name)),)


def _by_checkpoint(vmi: VMI) -> Sequence[str]:
    """Index VMIs by the key of the checkpoint that they were to start from."""
    name = starts_from(vmi)
    return (str(Key(vmi.metadata.namespace, name)),) if name else ()


def _affects_pool(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI affects the counts or the plan of its pool."""
    return (
        is_active(old) is not is_active(new)
        or is_ready(old) is not is_ready(new)
        or is_paused_spare(old) is not is_paused_spare(new)
        or is_settled(old) is not is_settled(new)
        or forked(old) != forked(new)
        or old.status.phase != new.status.phase
        or is_being_deleted(old) is not is_being_deleted(new)
        or old.metadata.annotations.get(SPARE_STATE) != new.metadata.annotations.get(SPARE_STATE)
        or old.metadata.labels != new.metadata.labels
        or old.metadata.owner_references != new.metadata.owner_references
    )
