"""Decides on the checkpoint from which the spares of a warm pool start.  Pure.

It is made of a source: a VMI that boots, and is no spare until the checkpoint is complete, so that
nobody has used the guest whose memory all others get.  A checkpoint is used until a newer one of
the same template is complete; the last one of another template is kept until then, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from corral.api.kinds.corral.checkpoint import EVICTED, FAILED, READY, VirtualMachineCheckpoint
from corral.api.kinds.corral.warm_pool import (
    CHECKPOINT_SOURCE_LABEL,
    FROM_CHECKPOINT,
    TEMPLATE_HASH_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.vmi.fork_state import forked, has_booted_instead
from corral.api.kinds.vmi.live_update import has_condition
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition
from corral.api.time import parse_duration, parse_rfc3339
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.replicas import is_active, is_ready

VMI = VirtualMachineInstance
Checkpoint = VirtualMachineCheckpoint

RETRY_SECONDS: Final = 300.0
"""Age of a checkpoint that failed, or does not fit, at which another one is made."""

COMPLETE, IN_PROGRESS, SOURCE_STARTING = "Complete", "InProgress", "SourceStarting"
NOT_SUPPORTED: Final = "NotSupported"
"""Reason of a target whose VMIs cannot start from a checkpoint."""


class CheckpointPlan(NamedTuple):
    """The checkpoint of a warm pool, and the changes to make."""

    usable: Checkpoint | None = None
    """The checkpoint from which spares start."""
    boots: bool = True
    """Whether spares boot while there is none."""
    needs_source: bool = False
    """Whether a VMI is to be created of which the checkpoint is made."""
    make: VMI | None = None
    """The source of which the checkpoint is to be made now."""
    release: tuple[VMI, ...] = ()
    """Sources that become spares."""
    delete: tuple[Checkpoint, ...] = ()
    reason: str = ""
    message: str = ""
    """Of the condition CheckpointReady; empty for pools whose spares boot."""
    next_seconds: float | None = None
    """Seconds until another checkpoint is to be made; None if none will be."""


def source_hash(vmi: VMI) -> str:
    """Return the hash of the template for whose checkpoint a VMI is the source; else empty."""
    return vmi.metadata.labels.get(CHECKPOINT_SOURCE_LABEL, "")


def plan_checkpoint(
    pool: VirtualMachineWarmPool,
    owned: Iterable[VMI],
    checkpoints: Iterable[Checkpoint],
    digest: str | None,
    now: datetime,
    *,
    forks: Iterable[VMI],
    serves: Callable[[str], bool],
    has_disk_pressure: bool = False,
) -> CheckpointPlan:
    """Return the plan for the checkpoint of a pool that owns these VMIs and checkpoints.

    ``forks`` are VMIs of the pool and its set that were to start from one of the checkpoints;
    ``digest`` is the hash of the present template; ``serves`` reports whether machines can start on
    a node, ``has_disk_pressure`` is True while all such nodes are short of disk space.
    """
    own = sorted(filter(_is_kept, checkpoints), key=_age_order)
    sources = [vmi for vmi in owned if is_active(vmi) and source_hash(vmi) == digest]
    if pool.spec.start_from != FROM_CHECKPOINT:
        return CheckpointPlan(release=tuple(sources), delete=tuple(own))
    if digest is None:
        return CheckpointPlan(delete=tuple(each for each in own if not each.has(READY)))
    spoilt = {starts_from(vmi): vmi for vmi in forks if has_booted_instead(vmi)}
    return _Observed(pool, spoilt, sources, own, digest, now, serves, has_disk_pressure).plan()


def not_supported(
    owned: Iterable[VMI], checkpoints: Iterable[Checkpoint], digest: str | None, why: str
) -> CheckpointPlan:
    """Return the plan for a pool whose target can start from no checkpoint: it keeps none."""
    sources = [vmi for vmi in owned if is_active(vmi) and source_hash(vmi) == digest]
    kept = tuple(filter(_is_kept, checkpoints))
    return CheckpointPlan(release=tuple(sources), delete=kept, reason=NOT_SUPPORTED, message=why)


class _Observed(NamedTuple):
    """A pool whose spares start from a checkpoint, with its VMIs and checkpoints."""

    pool: VirtualMachineWarmPool
    spoilt: Mapping[str, VMI]
    """VMIs that have booted instead, by the name of the checkpoint."""
    sources: Sequence[VMI]
    own: Sequence[Checkpoint]
    """The oldest first."""
    digest: str
    now: datetime
    serves: Callable[[str], bool]
    has_disk_pressure: bool

    def plan(self) -> CheckpointPlan:
        usable = next((each for each in reversed(self.own) if self._is_usable(each)), None)
        failed = [each for each in self.own if self._is_current(each) and self._fault(each)]
        waits = [left for each in failed if (left := self._retry_seconds(each)) > 0]
        ages = self._left(usable, _longest_age(self.pool)) if usable is not None else 0.0
        is_needed = ages <= 0 and not waits
        making = {each.spec.source.name: each for each in self.own if not each.is_final}
        released = [vmi for vmi in self.sources if self._is_done(vmi, making, is_needed=is_needed)]
        busy = [vmi for vmi in self.sources if vmi not in released]
        reason, message = self._report(usable, failed, busy, making)
        delays = [*waits, *([ages] if ages > 0 else [])]
        return CheckpointPlan(
            usable=usable,
            boots=usable is None and bool(waits),
            needs_source=is_needed and not self.sources,
            make=next(
                (vmi for vmi in busy if vmi.key.name not in making and is_settled(vmi)), None
            ),
            release=tuple(released),
            delete=tuple(self._obsolete(usable, is_needed=is_needed)),
            reason=reason,
            message=message,
            next_seconds=min(delays, default=None),
        )

    def _is_current(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.metadata.labels.get(TEMPLATE_HASH_LABEL) == self.digest

    def _is_usable(self, checkpoint: Checkpoint) -> bool:
        return (
            self._is_current(checkpoint)
            and checkpoint.has(READY)
            and not self._fault(checkpoint)
            and self.serves(checkpoint.status.node_name)
        )

    def _fault(self, checkpoint: Checkpoint) -> Condition | None:
        """Return why a checkpoint is of no use: it failed, or a VMI could not start from it."""
        for condition in checkpoint.status.conditions:
            if condition.type == FAILED and condition.status == "True":
                return condition
        vmi = self.spoilt.get(checkpoint.metadata.name)
        return None if vmi is None else forked(vmi)

    def _retry_seconds(self, checkpoint: Checkpoint) -> float:
        """Return the seconds until another one is made in place of one that is of no use.

        One that was removed for its space is made again five minutes after that, and not while
        there is no more room for it.
        """
        fault = self._fault(checkpoint)
        if fault is None or fault.reason != EVICTED:
            return self._left(checkpoint, RETRY_SECONDS)
        if self.has_disk_pressure:
            return float("inf")
        return self._seconds_until(fault.last_transition_time, RETRY_SECONDS)

    def _is_done(self, source: VMI, making: dict[str, Checkpoint], *, is_needed: bool) -> bool:
        """Report whether a source has served: it is an ordinary spare from now on."""
        if source.key.name in making:
            return False
        finished = any(
            each.spec.source.name == source.key.name and self._is_current(each) for each in self.own
        )
        return finished or not is_needed

    def _obsolete(self, usable: Checkpoint | None, *, is_needed: bool) -> Iterable[Checkpoint]:
        """Yield the checkpoints of which nobody will start any more."""
        sources = {vmi.key.name for vmi in self.sources}
        complete = [each for each in self.own if each.has(READY) and each is not usable]
        last = complete[-1:] if usable is None else []
        for each in self.own:
            if not each.is_final:
                if each.spec.source.name not in sources:
                    yield each
            elif each.has(READY):
                if each is not usable and each not in last:
                    yield each
            elif is_needed or not self._is_current(each) or _is_older(each, usable):
                yield each

    def _left(self, checkpoint: Checkpoint, seconds: float | None) -> float:
        """Return the seconds until a checkpoint has this age; infinite for None."""
        created = checkpoint.metadata.creation_timestamp
        if seconds is None or created is None:
            return float("inf")
        return self._seconds_until(created, seconds)

    def _seconds_until(self, begin: str | None, seconds: float) -> float:
        """Return the seconds until so many have passed since a time; 0 for none."""
        if not begin:
            return 0.0
        moment = parse_rfc3339(begin) + timedelta(seconds=seconds)
        return (moment - self.now).total_seconds()

    def _report(
        self,
        usable: Checkpoint | None,
        failed: Sequence[Checkpoint],
        busy: Sequence[VMI],
        making: dict[str, Checkpoint],
    ) -> tuple[str, str]:
        """Return reason and message of the condition CheckpointReady."""
        if usable is not None:
            node = usable.status.node_name
            return COMPLETE, f"spares start from checkpoint {usable.key.name} on node {node}"
        source = busy[0].key.name if busy else ""
        if source in making:
            return IN_PROGRESS, f"checkpoint {making[source].key.name} of {source} is being made"
        fault = self._fault(failed[-1]) if failed else None
        if fault is not None and not source:
            text = f"{failed[-1].key.name}: {fault.message}"
            if fault.reason == EVICTED:
                return fault.reason, f"{text}, five minutes later at the earliest"
            text = f"{text}: another one is tried after"
            return fault.reason, f"{text} {RETRY_SECONDS / 60:.0f} minutes, until then spares boot"
        text = f"{source or 'its source'} boots; others start from its checkpoint, which is made"
        return SOURCE_STARTING, f"{text} once it is Ready and its guest agent is connected"


def is_settled(vmi: VMI) -> bool:
    """Report whether a guest has booted: it is Ready, and its agent answers.

    Without an agent, forks of it would have the same host name, keys and random numbers.
    """
    is_up = is_active(vmi) and vmi.status.phase == "Running" and is_ready(vmi)
    return is_up and has_condition(vmi, "AgentConnected")


def _is_older(checkpoint: Checkpoint, other: Checkpoint | None) -> bool:
    return other is not None and _age_order(checkpoint) < _age_order(other)


def _longest_age(pool: VirtualMachineWarmPool) -> float | None:
    return None if pool.spec.max_age is None else parse_duration(pool.spec.max_age)


def _is_kept(checkpoint: Checkpoint) -> bool:
    return not is_being_deleted(checkpoint)


def _age_order(checkpoint: Checkpoint) -> tuple[str, str]:
    return checkpoint.metadata.creation_timestamp or "", checkpoint.metadata.name
