"""The loop of replica sets: watches, claims, acts on the plan, tells how far it is."""

from collections.abc import Iterable

import msgspec
import structlog

from corral.api.errors import ApiError
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.vmi import GROUP, OBSERVED_VERSIONS, VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.selectors import LabelSelector
from corral.api.time import rfc3339
from corral.controllers.replicaset.backoff import Backoff, Streak
from corral.controllers.replicaset.plan import Plan, is_active, is_ready, new_machine, plan, wanted
from corral.reconcile.batch import for_each, slow_start_batch
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, TerminalError
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.objects import Owner, controller_of, controller_uid, is_being_deleted
from corral.reconcile.ownership import adopt, release
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.selectors import own_selector
from corral.reconcile.workqueue import WorkQueue

ReplicaSet = VirtualMachineInstanceReplicaSet
Machine = VirtualMachineInstance

log = structlog.get_logger()

COMPONENT = "virtualmachineinstancereplicaset-controller"
BATCH_SECONDS = 0.05
"""News that only changes the figures in the status waits so long for more of the kind."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of replica sets."""
    loop = ReplicaSets(context)
    return Controller(
        "replicaset", loop.reconcile, queue=loop.queue, sources=(loop.sets, loop.machines)
    )


_OF_SETS = (GROUP, ReplicaSet.kind)
"""API group and kind of the owners of a set's machines."""


class ReplicaSets:
    """The loop's caches and what it remembers between two looks at a set."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.sets = context.informers.of(ReplicaSet)
        self.machines = context.informers.of(Machine)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self._backoff = Backoff()
        self._told: dict[str, str] = {}
        """By the uid of a set that is held back: the machine of which that was told last."""
        self.machines.index("claimed-by", _claimants)
        self.sets.index("namespace", lambda one: (one.metadata.namespace,))
        self.sets.handle(self._set_changed)
        self.machines.handle(self._machine_changed)
        retry_on_quota_increase(context, self.queue)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one set nearer to what it asks for (KubeVirt's replicaset.go, execute)."""
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
        held, streak = self._hold(replica_set, owned)
        unmet = self._expectations.unmet_seconds(replica_set.metadata.uid)
        decided = plan(replica_set, owned, held=held > 0)
        refused: list[ApiError] = []
        if not unmet:
            refused = await self._carry_out(replica_set, decided)
        await self._tell(replica_set, selector, decided, refused, streak)
        if refused:
            raise refused[0]
        waits = [seconds for seconds in (held, unmet) if seconds > 0]
        return Result(min(waits)) if waits else None

    # -- what belongs to the set ------------------------------------------------------------

    async def _claim(self, replica_set: ReplicaSet, selector: LabelSelector) -> list[Machine]:
        """The machines of the set, once it adopted what is its own and released what is not."""
        owned = self.machines.indexed("claimed-by", replica_set.metadata.uid)
        if is_being_deleted(replica_set):
            return owned
        strays = [one for one in owned if not selector.matches(one.metadata.labels)]
        orphans = [
            one
            for one in self.machines.indexed("claimed-by", _orphans(replica_set.metadata.namespace))
            if not is_being_deleted(one) and selector.matches(one.metadata.labels)
        ]
        if strays:
            owned = [one for one in owned if selector.matches(one.metadata.labels)]
            await release(self._client, replica_set.metadata.uid, strays)
        return owned + await adopt(self._client, replica_set, orphans)

    # -- acting -----------------------------------------------------------------------------

    def _hold(self, replica_set: ReplicaSet, owned: list[Machine]) -> tuple[float, Streak | None]:
        now, generation = self._context.monotonic(), replica_set.metadata.generation
        uid = replica_set.metadata.uid
        for machine in owned:
            if machine.is_final:
                self._backoff.note(uid, generation, machine, now)
        return self._backoff.hold(uid, generation, wanted(replica_set), now)

    async def _carry_out(self, replica_set: ReplicaSet, decided: Plan) -> list[ApiError]:
        going = [*decided.delete, *decided.clean]
        if not decided.create and not going:
            return []
        self._expectations.expect(
            replica_set.metadata.uid,
            creations=decided.create,
            deletions=[machine.metadata.uid for machine in going],
        )
        refused = await self._create(replica_set, decided.create)
        refused += await self._delete(
            replica_set,
            decided.delete,
            done="Stopped the virtual machine by deleting the virtual machine instance {}",
            failed="Error deleting virtual machine instance {}: {}",
        )
        # Also where the rest was refused, unlike KubeVirt's: who has ended takes a quota's place.
        return refused + await self._delete(
            replica_set,
            decided.clean,
            done="Deleted finished virtual machine: {}",
            failed="Error deleting finished virtual machine {}: {}",
        )

    async def _create(self, replica_set: ReplicaSet, count: int) -> list[ApiError]:
        document = new_machine(replica_set) if count else {}
        uid = replica_set.metadata.uid

        async def create(_: int) -> None:
            try:
                made = await self._client.create(Machine, document)
            except ApiError as error:
                self._expectations.creation_observed(uid)
                message = f"Error creating virtual machine instance: {error}"
                self._recorder.event(replica_set, "Warning", "FailedCreate", message)
                raise
            message = f"Created virtual machine: {made.metadata.name}"
            self._recorder.event(replica_set, "Normal", "SuccessfulCreate", message)

        tried, refused = await slow_start_batch(range(count), create)
        self._expectations.creation_observed(uid, count - tried)
        return refused

    async def _delete(
        self, replica_set: ReplicaSet, machines: Iterable[Machine], *, done: str, failed: str
    ) -> list[ApiError]:
        async def delete(machine: Machine) -> None:
            name, uid = machine.metadata.name, machine.metadata.uid
            try:
                asked = await remove(self._client, Machine, machine.key, uid)
            except ApiError as error:
                self._expectations.deletion_observed(replica_set.metadata.uid, uid)
                message = failed.format(name, error)
                self._recorder.event(replica_set, "Warning", "FailedDelete", message)
                raise
            if asked:
                self._recorder.event(replica_set, "Normal", "SuccessfulDelete", done.format(name))
            else:
                self._expectations.deletion_observed(
                    replica_set.metadata.uid, uid
                )  # it went by itself

        return await for_each(tuple(machines), delete)

    # -- telling ----------------------------------------------------------------------------

    async def _tell(
        self,
        replica_set: ReplicaSet,
        selector: LabelSelector,
        decided: Plan,
        refused: list[ApiError],
        streak: Streak | None,
    ) -> None:
        old = replica_set.status
        paused = replica_set.spec.paused
        failure = self._failure(replica_set, decided, refused, streak)
        conditions = {condition.type: condition for condition in old.conditions}
        was_paused = "ReplicaPaused" in conditions
        wanted_conditions = {"ReplicaPaused": paused, "ReplicaFailure": failure is not None}
        if (
            (old.replicas, old.ready_replicas) == (decided.replicas, decided.ready_replicas)
            and old.label_selector == str(selector)
            and all((name in conditions) is there for name, there in wanted_conditions.items())
        ):
            return
        kept = [
            msgspec.to_builtins(condition)
            for condition in old.conditions
            if wanted_conditions.get(condition.type, True)
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
        refused: list[ApiError],
        streak: Streak | None,
    ) -> tuple[str, str] | None:
        """Reason and message of the condition ReplicaFailure; None while all is well."""
        if refused:
            return ("FailedCreate" if decided.difference < 0 else "FailedDelete", str(refused[0]))
        if streak is None or decided.difference >= 0:
            return None
        last = f"{streak.name} ({streak.why})" if streak.why else streak.name
        message = (
            f"{streak.count} virtual machine instances ended right after their start, the last was "
            f"{last}: waiting longer and longer before the next is made"
        )
        if self._told.get(replica_set.metadata.uid) != streak.name:
            self._told[replica_set.metadata.uid] = streak.name
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

    # -- what changed -----------------------------------------------------------------------

    def _set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        changed = new or old
        assert changed is not None
        if new is None:
            self._backoff.forget(changed.metadata.uid)
            self._told.pop(changed.metadata.uid, None)
        if old is not None and new is not None and _asks_the_same(old, new):
            self.queue.add_after(changed.key, BATCH_SECONDS)  # most often our own status
        else:
            self.queue.add(changed.key)

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and not _matters(old, new):
            return
        namespace = changed.metadata.namespace
        for owner in _sets_of(old) | _sets_of(new):
            if old is None:
                self._expectations.creation_observed(owner.uid)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(owner.uid, changed.metadata.uid)
            if old is not None and is_active(old) and (new is None or not is_active(new)):
                self._soon(Key(namespace, owner.name), owner.uid)
            else:
                self.queue.add_after(Key(namespace, owner.name), BATCH_SECONDS)
        if new is not None and not controller_uid(new):
            self._offer(new)

    def _soon(self, key: Key, uid: str) -> None:
        """At once, unless the set waits for more of the same anyway."""
        if self._expectations.unmet_seconds(uid):
            self.queue.add_after(key, BATCH_SECONDS)
        else:
            self.queue.add(key)

    def _offer(self, orphan: Machine) -> None:
        for candidate in self.sets.indexed("namespace", orphan.metadata.namespace):
            try:
                matches = selector_of(candidate).matches(orphan.metadata.labels)
            except TerminalError:
                continue
            if matches:
                self.queue.add(candidate.key)


def selector_of(replica_set: ReplicaSet) -> LabelSelector:
    """The set's selector.  Raises TerminalError."""
    template = replica_set.spec.template
    return own_selector(
        replica_set.spec.selector, template.metadata.labels, template="spec.template"
    )


def _claimants(machine: Machine) -> tuple[str]:
    return (controller_uid(machine) or _orphans(machine.metadata.namespace),)


def _orphans(namespace: str) -> str:
    return f"orphans of {namespace}"


def _sets_of(machine: Machine | None) -> set[Owner]:
    """The set that manages a machine; none where nothing or something else does."""
    owner = None if machine is None else controller_of(machine)
    if owner is None or (owner.api_version.partition("/")[0], owner.kind) != _OF_SETS:
        return set()
    return {owner}


def _asks_the_same(old: ReplicaSet, new: ReplicaSet) -> bool:
    return old.spec == new.spec and old.metadata.annotations == new.metadata.annotations


def _matters(old: Machine, new: Machine) -> bool:
    """Whether a change of a machine is one that its set acts upon or counts."""
    return (
        is_active(old) is not is_active(new)
        or is_ready(old) is not is_ready(new)
        or is_being_deleted(old) is not is_being_deleted(new)
        or old.metadata.labels != new.metadata.labels
        or old.metadata.owner_references != new.metadata.owner_references
    )
