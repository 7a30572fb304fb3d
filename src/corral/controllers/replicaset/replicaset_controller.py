"""Controller of replica sets: claims VMIs, acts on the plan, writes status and events."""

from collections.abc import Iterable

import msgspec
import structlog

from corral.api.errors import ApiError, InternalError
from corral.api.kinds.corral.warm_pool import FROM_WARM_POOL
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.replacement import is_to_be_replaced
from corral.api.kinds.vmi.vmi import GROUP, OBSERVED_VERSIONS, VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.selectors import LabelSelector
from corral.api.time import rfc3339
from corral.controllers.replicaset.plan import Plan, desired_replicas, new_vmi, plan
from corral.reconcile.batch import for_each, slow_start_batch
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, TerminalError
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import Owner, controller_of, controller_uid, is_being_deleted
from corral.reconcile.ownership import adopt, release
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.replicas import is_active, is_ready
from corral.reconcile.selectors import own_selector
from corral.reconcile.spares import Spares
from corral.reconcile.start_backoff import Backoff, Streak
from corral.reconcile.workqueue import WorkQueue

ReplicaSet = VirtualMachineInstanceReplicaSet
VMI = VirtualMachineInstance

log = structlog.get_logger()

COMPONENT = "virtualmachineinstancereplicaset-controller"
BATCH_SECONDS = 0.05
"""Delay of events that only change counts in the status, so that they are handled together."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = ReplicaSets(context)
    return Controller(
        "replicaset",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.sets, loop.vmis, loop.spares.pools, loop.spares.checkpoints),
        families=loop.spares.families,
    )


_OWNER = (GROUP, ReplicaSet.kind)
"""API group and kind of the owner of a replica set's VMIs."""


class ReplicaSets:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.sets = context.informers.of(ReplicaSet)
        self.vmis = context.informers.of(VMI)
        self.spares = Spares(context)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self._backoff = Backoff()
        self._reported: dict[str, str] = {}
        """Name of the VMI in the last BackOff event, by the uid of the replica set."""
        self.vmis.index(_claimants)
        self.sets.index(by_namespace)
        self.sets.handle(self._set_changed)
        self.vmis.handle(self._vmi_changed)
        retry_on_quota_increase(context, self.queue)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one replica set (KubeVirt's replicaset.go, execute)."""
        replica_set = self.sets.get(key)
        if replica_set is None:
            return None
        if OBSERVED_VERSIONS.items() - replica_set.metadata.annotations.items():
            await self._client.patch(
                ReplicaSet, key, {"metadata": {"annotations": OBSERVED_VERSIONS}}
            )
            return None
        selector = selector_of(replica_set)
        owned = await self._claim(replica_set, selector)
        delay, streak = self._backoff_delay(replica_set, owned)
        unmet = self._expectations.unmet_seconds(replica_set.metadata.uid)
        decided = plan(replica_set, owned, backing_off=delay > 0)
        if adopted := await self._adopt_spares(replica_set, 0 if unmet else decided.create):
            decided = plan(replica_set, [*owned, *adopted])
        errors: list[ApiError] = []
        if not unmet:
            errors = await self._execute(replica_set, decided)
        await self._update_status(replica_set, selector, decided, errors, streak)
        if errors:
            raise errors[0]
        delays = [seconds for seconds in (delay, unmet) if seconds > 0]
        return Result(min(delays)) if delays else None

    # -- ownership --------------------------------------------------------------------------

    async def _claim(self, replica_set: ReplicaSet, selector: LabelSelector) -> list[VMI]:
        """Adopt and release VMIs by the selector; return those that the set owns."""
        owned = self.vmis.indexed(_claimants, replica_set.metadata.uid)
        if is_being_deleted(replica_set):
            return owned
        strays = [one for one in owned if not selector.matches(one.metadata.labels)]
        orphans = [
            one
            for one in self.vmis.indexed(_claimants, _orphans(replica_set.metadata.namespace))
            if not is_being_deleted(one) and selector.matches(one.metadata.labels)
        ]
        if strays:
            owned = [one for one in owned if selector.matches(one.metadata.labels)]
            await release(self._client, replica_set.metadata.uid, strays)
        return owned + await adopt(self._client, replica_set, orphans)

    async def _adopt_spares(self, replica_set: ReplicaSet, count: int) -> list[VMI]:
        """Adopt ready spares of the set's warm pools, at most ``count``; return them."""
        labels = replica_set.spec.template.metadata.labels
        adopted: list[VMI] = []
        for pool in self.spares.pools_of(replica_set):
            if not (missing := count - len(adopted)):
                break
            error: ApiError | None
            try:
                given, error = await self.spares.hand_out(pool, replica_set, labels, count=missing)
                adopted += given
            except InternalError as failure:
                error = failure
            if error is not None:  # as of a webhook: VMIs are created then
                text = f"Error adopting spares of warm pool {pool.metadata.name}: {error}"
                self._recorder.event(replica_set, "Warning", "FailedAdopt", text)
        for vmi in adopted:
            pool_name = vmi.metadata.annotations[FROM_WARM_POOL]
            message = f"Adopted virtual machine {vmi.metadata.name} of warm pool {pool_name}"
            self._recorder.event(replica_set, "Normal", "SuccessfulAdopt", message)
        return adopted

    # -- acting -----------------------------------------------------------------------------

    def _backoff_delay(
        self, replica_set: ReplicaSet, owned: list[VMI]
    ) -> tuple[float, Streak | None]:
        now, generation = self._context.monotonic(), replica_set.metadata.generation
        uid = replica_set.metadata.uid
        for vmi in owned:
            if vmi.is_final:
                self._backoff.record(uid, generation, vmi, now)
        return self._backoff.delay(uid, generation, desired_replicas(replica_set), now)

    async def _execute(self, replica_set: ReplicaSet, decided: Plan) -> list[ApiError]:
        doomed = [*decided.delete, *decided.clean]
        if not decided.create and not doomed:
            return []
        self._expectations.expect(
            replica_set.metadata.uid,
            creations=decided.create,
            deletions=[vmi.metadata.uid for vmi in doomed],
        )
        errors = await self._create(replica_set, decided.create)
        errors += await self._delete(
            replica_set,
            decided.delete,
            done="Stopped the virtual machine by deleting the virtual machine instance {}",
            failed="Error deleting virtual machine instance {}: {}",
        )
        # Unlike KubeVirt, also after failed creations: finished VMIs count against a quota.
        return errors + await self._delete(
            replica_set,
            decided.clean,
            done="Deleted finished virtual machine: {}",
            failed="Error deleting finished virtual machine {}: {}",
        )

    async def _create(self, replica_set: ReplicaSet, count: int) -> list[ApiError]:
        document = new_vmi(replica_set) if count else {}
        if count and (forked := self.spares.fork_annotations(replica_set)):
            metadata = document["metadata"]
            metadata["annotations"] = metadata.get("annotations", {}) | forked
        uid = replica_set.metadata.uid

        async def create(_: int) -> None:
            try:
                created = await self._client.create(VMI, document)
            except ApiError as error:
                self._expectations.creation_observed(uid)
                message = f"Error creating virtual machine instance: {error}"
                self._recorder.event(replica_set, "Warning", "FailedCreate", message)
                raise
            message = f"Created virtual machine: {created.metadata.name}"
            self._recorder.event(replica_set, "Normal", "SuccessfulCreate", message)

        tried, errors = await slow_start_batch(range(count), create)
        self._expectations.creation_observed(uid, count - tried)
        return errors

    async def _delete(
        self, replica_set: ReplicaSet, vmis: Iterable[VMI], *, done: str, failed: str
    ) -> list[ApiError]:
        async def delete(vmi: VMI) -> None:
            name, uid = vmi.metadata.name, vmi.metadata.uid
            try:
                deleted = await remove(self._client, VMI, vmi.key, uid)
            except ApiError as error:
                self._expectations.deletion_observed(replica_set.metadata.uid, uid)
                message = failed.format(name, error)
                self._recorder.event(replica_set, "Warning", "FailedDelete", message)
                raise
            if deleted:
                self._recorder.event(replica_set, "Normal", "SuccessfulDelete", done.format(name))
            else:
                self._expectations.deletion_observed(
                    replica_set.metadata.uid, uid
                )  # it was already gone

        return await for_each(tuple(vmis), delete)

    # -- status -----------------------------------------------------------------------------

    async def _update_status(
        self,
        replica_set: ReplicaSet,
        selector: LabelSelector,
        decided: Plan,
        errors: list[ApiError],
        streak: Streak | None,
    ) -> None:
        old = replica_set.status
        paused = replica_set.spec.paused
        failure = self._failure(replica_set, decided, errors, streak)
        conditions = {condition.type: condition for condition in old.conditions}
        was_paused = "ReplicaPaused" in conditions
        desired_conditions = {"ReplicaPaused": paused, "ReplicaFailure": failure is not None}
        if (
            (old.replicas, old.ready_replicas) == (decided.replicas, decided.ready_replicas)
            and old.label_selector == str(selector)
            and all((name in conditions) is present for name, present in desired_conditions.items())
        ):
            return
        kept = [
            msgspec.to_builtins(condition)
            for condition in old.conditions
            if desired_conditions.get(condition.type, True)
        ]
        if paused and not was_paused:
            kept.append(self._condition("ReplicaPaused", "Paused", "Controller got paused"))
        if failure is not None and "ReplicaFailure" not in conditions:
            kept.append(self._condition("ReplicaFailure", *failure))
        status = {
            "replicas": decided.replicas,
            "readyReplicas": decided.ready_replicas,
            "labelSelector": str(selector),
            "conditions": kept or None,
        }
        await self._client.patch(
            ReplicaSet, replica_set.key, {"status": status}, subresource="status"
        )
        if paused is not was_paused:
            reason = "SuccessfulPaused" if paused else "SuccessfulResumed"
            text = "Paused" if paused else "Resumed"
            self._recorder.event(replica_set, "Normal", reason, text)

    def _failure(
        self,
        replica_set: ReplicaSet,
        decided: Plan,
        errors: list[ApiError],
        streak: Streak | None,
    ) -> tuple[str, str] | None:
        """Return reason and message of the condition ReplicaFailure; None without a failure."""
        if errors:
            return ("FailedCreate" if decided.difference < 0 else "FailedDelete", str(errors[0]))
        if streak is None or decided.difference >= 0:
            return None
        last = f"{streak.name} ({streak.reason})" if streak.reason else streak.name
        message = (
            f"{streak.count} virtual machine instances ended right after their start, the last was "
            f"{last}: waiting longer and longer before the next is made"
        )
        if self._reported.get(replica_set.metadata.uid) != streak.name:
            self._reported[replica_set.metadata.uid] = streak.name
            self._recorder.event(replica_set, "Warning", "BackOff", message)
        return "BackOff", message

    def _condition(self, name: str, reason: str, message: str) -> Document:
        return {
            "type": name,
            "status": "True",
            "lastTransitionTime": rfc3339(self._context.clock()),
            "reason": reason,
            "message": message,
        }

    # -- event handlers ---------------------------------------------------------------------

    def _set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        changed = new or old
        assert changed is not None
        if new is None:
            self._backoff.forget(changed.metadata.uid)
            self._reported.pop(changed.metadata.uid, None)
        if old is not None and new is not None and _same_spec(old, new):
            self.queue.add_after(changed.key, BATCH_SECONDS)  # most often our own status
        else:
            self.queue.add(changed.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and not _affects_set(old, new):
            return
        namespace = changed.metadata.namespace
        for owner in _sets_of(old) | _sets_of(new):
            if old is None:
                self._expectations.creation_observed(owner.uid)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(owner.uid, changed.metadata.uid)
            if old is not None and is_active(old) and (new is None or not is_active(new)):
                self._enqueue(Key(namespace, owner.name), owner.uid)
            else:
                self.queue.add_after(Key(namespace, owner.name), BATCH_SECONDS)
        if new is not None and not controller_uid(new):
            self._enqueue_matching(new)

    def _enqueue(self, key: Key, uid: str) -> None:
        """Enqueue at once, unless the set is synced again anyway once its expectations are met."""
        if self._expectations.unmet_seconds(uid):
            self.queue.add_after(key, BATCH_SECONDS)
        else:
            self.queue.add(key)

    def _enqueue_matching(self, orphan: VMI) -> None:
        for candidate in self.sets.indexed(by_namespace, orphan.metadata.namespace):
            try:
                matches = selector_of(candidate).matches(orphan.metadata.labels)
            except TerminalError:
                continue
            if matches:
                self.queue.add(candidate.key)


def selector_of(replica_set: ReplicaSet) -> LabelSelector:
    """Return the selector of the replica set.  Raises TerminalError."""
    template = replica_set.spec.template
    return own_selector(
        replica_set.spec.selector, template.metadata.labels, template="spec.template"
    )


def _claimants(vmi: VMI) -> tuple[str]:
    return (controller_uid(vmi) or _orphans(vmi.metadata.namespace),)


def _orphans(namespace: str) -> str:
    return f"orphans of {namespace}"


def _sets_of(vmi: VMI | None) -> set[Owner]:
    """Return the replica set that controls a VMI, if one does."""
    owner = None if vmi is None else controller_of(vmi)
    if owner is None or (owner.api_version.partition("/")[0], owner.kind) != _OWNER:
        return set()
    return {owner}


def _same_spec(old: ReplicaSet, new: ReplicaSet) -> bool:
    return old.spec == new.spec and old.metadata.annotations == new.metadata.annotations


def _affects_set(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI affects the counts or the plan of its replica set."""
    return (
        is_active(old) is not is_active(new)
        or is_ready(old) is not is_ready(new)
        or is_being_deleted(old) is not is_being_deleted(new)
        or old.metadata.labels != new.metadata.labels
        or old.metadata.owner_references != new.metadata.owner_references
        or is_to_be_replaced(old) is not is_to_be_replaced(new)
    )
