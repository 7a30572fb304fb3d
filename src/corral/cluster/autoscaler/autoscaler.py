"""Looks at every autoscaler each 15 seconds, and scales what it names as its metrics ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler
from lightkube.models.core_v1 import Pod

from corral.api.errors import ApiError, BadRequest, Conflict, NotFound
from corral.api.object import Document, Key
from corral.api.selectors import LabelSelector, parse_labels
from corral.cluster.autoscaler import targets
from corral.cluster.autoscaler.behavior import Bounds, History, settle
from corral.cluster.autoscaler.metrics_client import AT_ONCE, Measured
from corral.cluster.autoscaler.proposals import UNKNOWN, Asked, Proposals, Refusal, tolerance_of
from corral.cluster.autoscaler.replicas import Situation
from corral.cluster.autoscaler.selector_conflicts import Rivals
from corral.cluster.autoscaler.status import ABLE, ACTIVE, LIMITED, SCALED_TO_ZERO, Status
from corral.cluster.autoscaler.targets import NoTarget, Target
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, uid_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "horizontal-pod-autoscaler"
SYNC_SECONDS = 15.0
FIRST_SECONDS = 1.0
"""A new autoscaler often comes with its target, which is to say first which pods are its own."""
EARLY_SECONDS = 60.0
"""Nodes find their machines again, and look at each of them twice, before they know what it takes.
Within this time of our start, which is most often theirs, it is nothing to warn of."""
WORKERS = 4 * AT_ONCE
"""More than can wait for custom and external metrics: where these hang, others are looked at."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of autoscalers."""
    loop = Autoscalers(context)
    return Controller(
        "autoscaler", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=WORKERS
    )


@dataclass(eq=False)
class NoNumber(Exception):
    """Nothing tells how many there should be.

    ``reason`` and ``told`` are those of the condition, ``whole`` is the text of the event;
    ``metrics`` is what the metrics are at all the same.  ``is_early``, where it will soon be known.
    """

    reason: str
    told: str
    whole: str
    metrics: Sequence[Document] = ()
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """How many there shall be, why, and what the metrics that say so are at."""

    replicas: int
    reason: str = ""
    metrics: Sequence[Document] = ()


class Autoscalers:
    """The autoscalers, the pods of their targets, and what was done of late."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.autoscalers = context.informers.of(HorizontalPodAutoscaler)
        self.pods = context.informers.of(Pod)
        self.sources = (self.autoscalers, self.pods)
        self._client = context.client
        self._kinds = context.kinds
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._begun = context.monotonic()
        self._recorder = context.recorder(COMPONENT)
        self._metrics = Measured(context.client, context.kinds.table)
        self._rivals = Rivals()
        self._histories: dict[Key, History] = {}
        self.pods.index("namespace", lambda pod: (key_of(pod).namespace,))
        self.autoscalers.handle(self._changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one target to the number that its autoscaler's metrics ask for."""
        autoscaler = self.autoscalers.get(key)
        if autoscaler is None or is_being_deleted(autoscaler):
            return None
        status = Status(autoscaler, self._clock())
        await self._scale(autoscaler, status)
        await self._write(autoscaler, status)
        return Result(requeue_after=SYNC_SECONDS)

    async def _scale(self, autoscaler: HorizontalPodAutoscaler, status: Status) -> None:
        key = key_of(autoscaler)
        reference = autoscaler.spec.scaleTargetRef
        # Of this look, whatever is forgotten meanwhile: a new one would know of no need for more.
        history = self._histories.setdefault(key, History())
        try:
            kinds = self._kinds.table
            target = await targets.read(self._client, kinds, key.namespace, reference)
        except (NoTarget, ApiError) as error:
            if isinstance(error, NoTarget | NotFound):
                self._rivals.forget(key)
            self._warn(autoscaler, "FailedGetScale", str(error))
            text = f"the HPA controller was unable to get the target's current scale: {error}"
            status.say(ABLE, "FailedGetScale", text, holds=False)
            return
        self._check(autoscaler)
        text = "the HPA controller was able to get the target's current scale"
        status.say(ABLE, "SucceededGetScale", text)
        if target.replicas and status.says(SCALED_TO_ZERO):
            _tell_of_zero(target.replicas, status)  # somebody else made some again
        history.begin(target.replicas, self._monotonic())
        try:
            wish = await self._wish(autoscaler, target, history, status)
        except NoNumber as error:
            history.hold(autoscaler.spec.behavior, self._monotonic())
            if error.is_early and status.says(ACTIVE):
                return  # as it was told before our start
            status.say(ACTIVE, error.reason, error.told, holds=False)
            status.counted(target.replicas, error.metrics)
            if not error.is_early:
                self._warn(autoscaler, "FailedComputeMetricsReplicas", error.whole)
            return
        status.counted(target.replicas, wish.metrics)
        if wish.replicas == target.replicas:
            status.decided(wish.replicas, is_change=False)
        elif await self._rescale(autoscaler, target, wish, status):
            behavior, now = autoscaler.spec.behavior, self._monotonic()
            history.scaled(target.replicas, wish.replicas, behavior, now)

    async def _rescale(
        self, autoscaler: HorizontalPodAutoscaler, target: Target, wish: Wish, status: Status
    ) -> bool:
        """Have so many made; answers whether that went well."""
        told = f"New size: {wish.replicas}; reason: {wish.reason}"
        if wish.replicas == 0:
            # Said first: where nobody knows who left none, none is ever made again.
            _tell_of_zero(0, status)
            await self._write(autoscaler, status)
        self._check(autoscaler)
        try:
            await targets.rescale(self._client, target, wish.replicas)
        except Conflict:
            raise  # somebody else scaled it: look again
        except ApiError as error:
            self._warn(autoscaler, "FailedRescale", f"{told}; error: {error}")
            text = f"the HPA controller was unable to update the target scale: {error}"
            status.say(ABLE, "FailedUpdateScale", text, holds=False)
            return False
        text = f"the HPA controller was able to update the target scale to {wish.replicas}"
        status.say(ABLE, "SucceededRescale", text)
        status.decided(wish.replicas, is_change=True)
        _tell_of_zero(wish.replicas, status)
        self._recorder.event(autoscaler, "Normal", "SuccessfulRescale", told)
        return True

    def _check(self, autoscaler: HorizontalPodAutoscaler) -> None:
        """Raises Conflict where an autoscaler is another one by now, or none: look again."""
        found = self.autoscalers.get(key_of(autoscaler))
        if found is None or is_being_deleted(found) or not _is_same(found, autoscaler):
            raise Conflict("the autoscaler was changed while it was looked at")

    async def _wish(
        self, autoscaler: HorizontalPodAutoscaler, target: Target, history: History, status: Status
    ) -> Wish:
        """How many there shall be.  Raises NoNumber."""
        spec, current = autoscaler.spec, target.replicas
        most = spec.maxReplicas
        least = min(1 if spec.minReplicas is None else spec.minReplicas, most)
        if current == 0 and not status.says(SCALED_TO_ZERO):
            text = "scaling is disabled since the replica count of the target is zero"
            status.say(ACTIVE, "ScalingDisabled", text, holds=False)
            return Wish(0)
        if current > most:
            return Wish(most, "Current number of replicas above Spec.MaxReplicas")
        if current < least:
            return Wish(least, "Current number of replicas below Spec.MinReplicas")
        asked, metrics = await self._asked(autoscaler, target)
        text = f"the HPA was able to successfully calculate a replica count from {asked.name}"
        status.say(ACTIVE, "ValidMetricFound", text)
        now, bounds = self._monotonic(), Bounds(current, least, most)
        outcome = settle(asked.replicas, bounds, spec.behavior, history, now)
        history.recommend(asked.replicas, spec.behavior, now)
        status.say(ABLE, *outcome.able)
        status.say(LIMITED, *outcome.limit, holds=outcome.is_limited)
        return Wish(outcome.replicas, _reason(outcome.replicas, asked, current), metrics)

    async def _asked(
        self, autoscaler: HorizontalPodAutoscaler, target: Target
    ) -> tuple[Asked, list[Document]]:
        """The metric that asks for most, and what each metric is at.

        Where one of them tells nothing, the others may have more made, but none removed.  Raises
        NoNumber.
        """
        selector = self._selector(autoscaler, target)
        situation = Situation(
            current=target.replicas,
            observed=target.observed,
            pods=self._pods(autoscaler, selector),
            now=self._clock(),
            tolerance=tolerance_of(autoscaler),
        )
        namespace = key_of(autoscaler).namespace
        proposals = Proposals(self._metrics, namespace, target.selector, situation)
        answers = await proposals.of_each(autoscaler.spec.metrics or ())
        asked = [each for each in answers if isinstance(each, Asked)]
        refused = [each for each in answers if isinstance(each, Refusal)]
        metrics = [each.status if isinstance(each, Asked) else UNKNOWN for each in answers]
        is_young = self._monotonic() - self._begun < EARLY_SECONDS
        grave = [each for each in refused if not (is_young and each.is_unmeasured)]
        for refusal in grave:
            self._warn(autoscaler, refusal.reason, refusal.told)
        best = max(asked, key=lambda each: each.replicas, default=None)
        if best is not None and (not refused or best.replicas >= target.replicas):
            return best, metrics
        raise _unknown(refused, metrics, is_early=bool(refused) and not grave)

    def _selector(self, autoscaler: HorizontalPodAutoscaler, target: Target) -> LabelSelector:
        """Which pods are the target's.  Raises NoNumber."""
        if not target.selector:
            text = "selector is required"
            self._warn(autoscaler, "SelectorRequired", text)
            raise NoNumber("InvalidSelector", "the HPA target's scale is missing a selector", text)
        try:
            return parse_labels(target.selector)
        except BadRequest as error:
            text = "couldn't convert selector into a corresponding internal selector object: "
            text += str(error)
            self._warn(autoscaler, "InvalidSelector", text)
            raise NoNumber("InvalidSelector", text, text) from None

    def _pods(self, autoscaler: HorizontalPodAutoscaler, selector: LabelSelector) -> list[Pod]:
        """What a selector selects, if no other autoscaler looks after it.  Raises NoNumber."""
        key = key_of(autoscaler)
        self._rivals.put(key, selector)
        pods = [
            pod
            for pod in self.pods.indexed("namespace", key.namespace)
            if selector.matches(labels_of(pod))
        ]
        others = self._rivals.of(pods)
        if len(others) > 1:
            named = " ".join(map(str, others))
            text = f"pods by selector {selector} are controlled by multiple HPAs: [{named}]"
            self._warn(autoscaler, "AmbiguousSelector", text)
            raise NoNumber("AmbiguousSelector", text, text)
        return pods

    async def _write(self, autoscaler: HorizontalPodAutoscaler, status: Status) -> None:
        change = status.change()
        if change is None:
            return
        patch = {"metadata": {"uid": uid_of(autoscaler)}, "status": change}
        view, key = HorizontalPodAutoscaler, key_of(autoscaler)
        try:
            await self._client.patch(view, key, patch, subresource="status")
        except (NotFound, Conflict):
            return  # gone, or another one of its name by now
        except ApiError as error:
            self._warn(autoscaler, "FailedUpdateStatus", str(error))
            raise

    def _warn(self, autoscaler: HorizontalPodAutoscaler, reason: str, message: str) -> None:
        self._recorder.event(autoscaler, "Warning", reason, message)

    def _changed(
        self, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None
    ) -> None:
        if old is None and new is not None:
            self.queue.add_after(key_of(new), FIRST_SECONDS)
        elif old is not None and new is not None:
            if uid_of(old) != uid_of(new) or old.spec.scaleTargetRef != new.spec.scaleTargetRef:
                self._forget(key_of(new))  # what was asked of another target tells nothing here
            if not _is_same(old, new):
                self.queue.add(key_of(new))
        elif old is not None:
            self._forget(key_of(old))

    def _forget(self, key: Key) -> None:
        self._histories.pop(key, None)
        self._rivals.forget(key)


def _is_same(one: HorizontalPodAutoscaler, other: HorizontalPodAutoscaler) -> bool:
    return uid_of(one) == uid_of(other) and one.spec == other.spec


def _reason(replicas: int, asked: Asked, current: int) -> str:
    """Why a number changes."""
    if replicas < current:
        return "All metrics below target"
    if asked.replicas > current:
        return f"{asked.name} above target"
    return "Current number of replicas below a recent recommendation"


def _unknown(
    refused: Sequence[Refusal], metrics: Sequence[Document], *, is_early: bool
) -> NoNumber:
    """What is told where so many of the metrics tell nothing that nothing can be decided."""
    if not refused:
        text = "the autoscaler has no metrics"
        return NoNumber("InvalidMetricSourceType", text, text)
    first = refused[0]
    whole = f"invalid metrics ({len(refused)} invalid out of {len(metrics)}), first error is: "
    told = f"the HPA was unable to compute the replica count: {first.told}"
    return NoNumber(first.reason, told, whole + first.whole, metrics, is_early)


def _tell_of_zero(replicas: int, status: Status) -> None:
    """Say whether it was the autoscaler that left none: what a person scaled to none stays so."""
    if replicas == 0:
        text = "the HPA controller scaled the workload to zero"
        status.say(SCALED_TO_ZERO, "ScaledToZero", text)
    else:
        text = "the HPA controller did not scale the workload to zero"
        status.say(SCALED_TO_ZERO, "NotScaledToZero", text, holds=False)
