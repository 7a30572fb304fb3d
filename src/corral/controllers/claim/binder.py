"""Controller that binds claims to spares of their warm pool, in order of arrival.

Its keys are those of warm pools, so that one reconcile at a time hands out a pool's spares.  A
spare becomes a claim's machine by one write, that of ``corral.reconcile.spares``; the status of the
claim follows from the machines that it owns, so that a controller that is killed between the two
writes, or that loses the response to the first, goes on with the machine that was handed out.
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from corral.api.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from corral.api.kinds.corral.claim import (
    BOUND,
    CLAIM_LABEL,
    HAND_OUT_FAILED,
    NOT_FOUND,
    VirtualMachineClaim,
)
from corral.api.kinds.corral.spare_state import is_paused_spare
from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL, VirtualMachineWarmPool
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import parse_rfc3339
from corral.controllers.claim import status
from corral.controllers.claim.machines import index_machines, machines_of, patch_status
from corral.controllers.claim.plan import (
    in_order,
    is_overdue,
    is_pending,
    machine_annotations,
    machine_labels,
)
from corral.metrics import Family, Histogram, counter, gauge, histogram
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import controller_uid, is_being_deleted, is_ready
from corral.reconcile.spares import Spares, pool_labels
from corral.reconcile.workqueue import WorkQueue

Claim = VirtualMachineClaim
VMI = VirtualMachineInstance
WarmPool = VirtualMachineWarmPool

COMPONENT = "virtualmachineclaim-controller"
_JUST_NOW = timedelta(seconds=2)
POSITION_SECONDS = 1.0
"""Shortest time between two updates of all positions in the queue of a warm pool."""


def binder(context: ControllerContext) -> Controller[Key]:
    loop = Binder(context)
    return Controller(
        "claim-binder",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.claims, loop.spares.pools, loop.spares.sets, loop.spares.vmis),
        families=loop.families,
    )


class Binder:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.spares = Spares(context)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._unsure: set[str] = set()
        """Uids of claims to which a spare may have been handed out that no cache shows yet."""
        self._positions_at: dict[Key, float] = {}
        """When the positions of a pool's claims were updated last."""
        self._bound: dict[Key, Histogram] = {}
        """Seconds from the creation of claims to their machines, by warm pool."""
        self._seen: dict[str, datetime] = {}
        """When claims that wait came, by uid: creation times have whole seconds."""
        self.claims.index(_awaited_pool)
        index_machines(self.spares.vmis)
        self.claims.handle(self._claim_changed)
        self.spares.pools.handle(self._pool_changed)
        self.spares.vmis.handle(self._vmi_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bind the claims that wait for a warm pool, as far as it has spares.

        A claim that is refused does not keep the others waiting.  Raises ApiError afterwards.
        """
        failures: dict[str, ApiError] = {}
        now = self._context.clock()
        waiting = [
            claim
            for claim in in_order(self.claims.indexed(_awaited_pool, str(key)))
            if not await self._try(claim, self._bind_earlier(claim, failures), failures)
            and not is_overdue(claim, now)  # else it is about to expire
        ]
        pool = self.spares.pools.get(key)
        result = None
        if pool is None or is_being_deleted(pool):
            await self._report_missing(waiting)
        else:
            waiting = await self._hand_out_all(pool, waiting, failures)
            result = await self._report_waiting(pool, waiting, failures)
        for error in failures.values():
            raise error
        return result

    # -- binding ----------------------------------------------------------------------------

    async def _try(
        self, claim: Claim, step: Awaitable[bool], failures: dict[str, ApiError]
    ) -> bool:
        """Return whether a step has given a claim its machine; note its error."""
        try:
            return await step
        except ApiError as error:
            failures[claim.metadata.uid] = error
            return False

    async def _bind_earlier(self, claim: Claim, failures: dict[str, ApiError]) -> bool:
        """Bind a claim to the machine that an earlier reconcile has handed out to it."""
        machine = await self._earlier_machine(claim)
        if machine is not None:
            await self._bind(claim, machine, failures)
        return machine is not None

    async def _earlier_machine(self, claim: Claim) -> VMI | None:
        if claim.metadata.uid not in self._unsure:
            return next(iter(machines_of(self.spares.vmis, claim)), None)
        namespace, name = claim.key
        listed = await self._client.list(VMI, namespace, labels=f"{CLAIM_LABEL}={name}")
        owned = (vmi for vmi in listed.items if controller_uid(vmi) == claim.metadata.uid)
        machine = next(owned, None)
        if machine is None:
            self._unsure.discard(claim.metadata.uid)
        return machine

    async def _hand_out_all(
        self, pool: WarmPool, waiting: Sequence[Claim], failures: dict[str, ApiError]
    ) -> list[Claim]:
        """Hand spares to claims in their order; return those that go on waiting."""
        left = []
        for number, claim in enumerate(waiting):
            may_try = claim.metadata.uid not in failures and self.spares.ready(pool)
            if may_try and await self._try(claim, self._hand_out(pool, claim, failures), failures):
                continue
            left.append(claim)
            if not _is_refused(claim, failures):
                return [*left, *waiting[number + 1 :]]  # none goes before it
        return left

    async def _hand_out(self, pool: WarmPool, claim: Claim, failures: dict[str, ApiError]) -> bool:
        """Hand a spare to a claim; return False if there was none after all.

        Raises ApiError: the refusal if all spares that are ready were refused.
        """
        uid = claim.metadata.uid
        self._unsure.add(uid)  # until it is seen bound, or nothing was handed out for certain
        try:
            given, refused = await self.spares.hand_out(
                pool, claim, machine_labels(claim, pool), annotations=machine_annotations(claim)
            )
        except (Conflict, NotFound):
            self._unsure.discard(uid)
            return True  # the claim is being deleted: it waits no longer
        for machine in given:
            await self._bind(claim, machine, failures)
        if not given:
            self._unsure.discard(uid)
            if refused is not None:
                raise refused
        return bool(given)

    async def _bind(self, claim: Claim, machine: VMI, failures: dict[str, ApiError]) -> None:
        """Write that a claim is bound; one that has changed is bound in its new version."""
        now = self._context.clock()
        new = status.bound(claim, machine, now)
        try:
            await patch_status(self._client, claim, new)
        except (Conflict, NotFound):
            return
        except ApiError as error:
            failures[claim.metadata.uid] = error
            return
        pool = _pool_key(claim)
        seconds = (now - self._seen.pop(claim.metadata.uid, now)).total_seconds()
        self._bound.setdefault(pool, Histogram()).observe(seconds)
        text = f"Bound to virtual machine instance {machine.metadata.name} of warm pool {pool.name}"
        self._recorder.event(claim, "Normal", "Bound", text)

    # -- waiting ----------------------------------------------------------------------------

    async def _report_missing(self, waiting: Sequence[Claim]) -> None:
        now = self._context.clock()
        changes = [(claim, status.without_pool(claim, now)) for claim in waiting]
        for claim, _ in changes:
            if _reason(claim) != NOT_FOUND:
                name = claim.spec.warm_pool_ref.name
                text = f"There is no VirtualMachineWarmPool {name}: the claim waits for it"
                self._recorder.event(claim, "Warning", NOT_FOUND, text)
        await self._patch_all(changes)

    async def _report_waiting(
        self, pool: WarmPool, waiting: Sequence[Claim], failures: Mapping[str, ApiError]
    ) -> Result | None:
        """Write why each claim waits, at once where nothing says so yet."""
        now, monotonic, key = self._context.clock(), self._context.monotonic(), pool.key
        if not waiting:
            self._positions_at.pop(key, None)
            return None
        refused = [claim for claim in waiting if _is_refused(claim, failures)]
        for claim in refused:
            if _reason(claim) != HAND_OUT_FAILED:
                error = failures[claim.metadata.uid]
                text = f"A spare of warm pool {key.name} could not be handed out: {error}"
                self._recorder.event(claim, "Warning", HAND_OUT_FAILED, text)
        changes = [
            (claim, status.refused(claim, failures[claim.metadata.uid], now))
            if claim in refused
            else (claim, status.pending(claim, position, pool, now))
            for position, claim in enumerate(waiting, 1)
        ]
        new = [one for one in changes if one[0].status.arrival is None]
        self.spares.misses[key, Claim.kind] += sum(one[0] not in refused for one in new)
        due = self._positions_at.get(key, -POSITION_SECONDS) + POSITION_SECONDS
        if monotonic >= due:
            self._positions_at[key] = monotonic
            await self._patch_all(changes)
            return None
        await self._patch_all(new)
        late = any(_differs(one) for one in changes if one not in new)
        return Result(due - monotonic) if late else None

    async def _patch_all(self, changes: Sequence[tuple[Claim, Document]]) -> None:
        """Write statuses.  Raises ApiError; a claim that is gone or has changed is left out."""

        async def write(change: tuple[Claim, Document]) -> None:
            await patch_status(self._client, *change)

        for error in await for_each(changes, write):
            if not isinstance(error, Conflict | NotFound):
                raise error

    # -- metrics ----------------------------------------------------------------------------

    def families(self) -> Iterable[Family]:
        """Return the metrics of claims; none before the first claim."""
        total = counter("corral_claims_bound_total", "Claims that were given a machine.")
        seconds = histogram(
            "corral_claim_seconds", "How long claims waited for a machine, by warm pool."
        )
        for key, durations in self._bound.items():
            total.add(sum(durations.counts), pool_labels(key))
            seconds.add_histogram(durations, pool_labels(key))
        waiting = gauge("corral_claims_waiting", "Claims that wait for a machine now.")
        counts: dict[Key, int] = dict.fromkeys(self._bound, 0)
        for claim in self.claims.items():
            if is_pending(claim):
                key = _pool_key(claim)
                counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            waiting.add(count, pool_labels(key))
        own = (total, seconds, waiting) if counts else ()
        return (*own, *self.spares.families())

    # -- event handlers ---------------------------------------------------------------------

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is None and new is not None and is_pending(new):
            self._seen[new.metadata.uid] = self._arrival(new)
        elif old is not None and (new is None or not is_pending(new)):
            self._unsure.discard(old.metadata.uid)
            if new is None:
                self._seen.pop(old.metadata.uid, None)
        for claim in (old, new):
            if claim is not None and is_pending(claim):
                self.queue.add(_pool_key(claim))
                return

    def _arrival(self, claim: Claim) -> datetime:
        """Return when a claim was created: just now, unless this controller has just started."""
        now, created = self._context.clock(), claim.metadata.creation_timestamp
        if created is None or now - (moment := parse_rfc3339(created)) <= _JUST_NOW:
            return now
        return moment

    def _pool_changed(self, old: WarmPool | None, new: WarmPool | None) -> None:
        changed = new or old
        assert changed is not None
        if old is None or new is None or is_being_deleted(new):
            self._enqueue_if_awaited(changed.key)

    def _vmi_changed(self, _old: VMI | None, new: VMI | None) -> None:
        """Enqueue the warm pool of a spare that may be handed out now."""
        if new is None:
            return
        name = new.metadata.labels.get(WARM_POOL_LABEL)
        may_be_given = is_ready(new) or is_paused_spare(new)
        if name is not None and may_be_given and not is_being_deleted(new):
            self._enqueue_if_awaited(Key(new.metadata.namespace, name))

    def _enqueue_if_awaited(self, key: Key) -> None:
        if self.claims.indexed(_awaited_pool, str(key)):
            self.queue.add(key)


def _pool_key(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.spec.warm_pool_ref.name)


def _awaited_pool(claim: Claim) -> Sequence[str]:
    return (str(_pool_key(claim)),) if is_pending(claim) else ()


def _is_refused(claim: Claim, failures: Mapping[str, ApiError]) -> bool:
    """Report whether a claim waits although spares are ready, which it was not given."""
    return isinstance(failures.get(claim.metadata.uid), BadRequest | Forbidden | Invalid)


def _reason(claim: Claim) -> str:
    return next((each.reason for each in claim.status.conditions if each.type == BOUND), "")


def _differs(change: tuple[Claim, Document]) -> bool:
    claim, new = change
    return bool(status.difference(claim.status, new))
