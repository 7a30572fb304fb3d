"""Syncs every HorizontalPodAutoscaler each 15 seconds: scales its target as its metrics propose."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler
from lightkube.models.core_v1 import Pod

from corral.api.errors import ApiError, BadRequest, Conflict, NotFound
from corral.api.object import Document, Key
from corral.api.selectors import LabelSelector, parse_labels
from corral.cluster.autoscaler import targets
from corral.cluster.autoscaler.behavior import Bounds, History, normalize
from corral.cluster.autoscaler.metrics_client import MAX_CONCURRENT, MetricsClient
from corral.cluster.autoscaler.proposals import (
    UNKNOWN,
    InvalidMetric,
    MetricProposal,
    Proposals,
    tolerance_of,
)
from corral.cluster.autoscaler.replicas import ScaleState
from corral.cluster.autoscaler.selector_conflicts import SelectorConflicts
from corral.cluster.autoscaler.status import ABLE, ACTIVE, LIMITED, SCALED_TO_ZERO, Status
from corral.cluster.autoscaler.targets import Target, TargetNotFound
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, uid_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "horizontal-pod-autoscaler"
SYNC_SECONDS = 15.0
FIRST_SECONDS = 1.0
"""Delay of the first sync: a new autoscaler often comes with its target, whose status needs a
selector first."""
EARLY_SECONDS = 60.0
"""Time after our start in which unmeasured pods cause no warning: nodes, which most often start
with us, find their machines again and sample each twice before they report usage."""
WORKERS = 4 * MAX_CONCURRENT
"""More than can wait for custom and external metrics: where these hang, other autoscalers go on."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Autoscalers(context)
    return Controller(
        "autoscaler", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=WORKERS
    )


@dataclass(eq=False)
class NoReplicaCount(Exception):
    """No number of replicas can be computed.

    ``reason`` and ``message`` are those of the condition, ``event_message`` is the message of the
    event; ``metrics`` are the current metrics all the same. ``is_early``: metrics will be known
    soon.
    """

    reason: str
    message: str
    event_message: str
    metrics: Sequence[Document] = ()
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired replicas, the reason, and the current metrics behind it."""

    replicas: int
    reason: str = ""
    metrics: Sequence[Document] = ()


class Autoscalers:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.autoscalers = context.informers.of(HorizontalPodAutoscaler)
        self.pods = context.informers.of(Pod)
        self.sources = (self.autoscalers, self.pods)
        self._client = context.client
        self._kinds = context.kinds
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._started = context.monotonic()
        self._recorder = context.recorder(COMPONENT)
        self._metrics = MetricsClient(context.client, context.kinds.table)
        self._conflicts = SelectorConflicts()
        self._histories: dict[Key, History] = {}
        self.pods.index(by_namespace)
        self.autoscalers.handle(self._changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one autoscaler and its target."""
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
        # Keep this history for the whole sync: a new one would lack the recommendations.
        history = self._histories.setdefault(key, History())
        try:
            kinds = self._kinds.table
            target = await targets.read(self._client, kinds, key.namespace, reference)
        except (TargetNotFound, ApiError) as error:
            if isinstance(error, TargetNotFound | NotFound):
                self._conflicts.forget(key)
            self._warn(autoscaler, "FailedGetScale", str(error))
            text = f"the HPA controller was unable to get the target's current scale: {error}"
            status.set_condition(ABLE, "FailedGetScale", text, is_true=False)
            return
        self._check(autoscaler)
        text = "the HPA controller was able to get the target's current scale"
        status.set_condition(ABLE, "SucceededGetScale", text)
        if target.replicas and status.is_true(SCALED_TO_ZERO):
            _set_scaled_to_zero(target.replicas, status)  # somebody else scaled it up again
        history.begin(target.replicas, self._monotonic())
        try:
            desired = await self._desired_replicas(autoscaler, target, history, status)
        except NoReplicaCount as error:
            history.repeat_last(autoscaler.spec.behavior, self._monotonic())
            if error.is_early and status.is_true(ACTIVE):
                return  # keep the condition from before our start
            status.set_condition(ACTIVE, error.reason, error.message, is_true=False)
            status.set_observed(target.replicas, error.metrics)
            if not error.is_early:
                self._warn(autoscaler, "FailedComputeMetricsReplicas", error.event_message)
            return
        status.set_observed(target.replicas, desired.metrics)
        if desired.replicas == target.replicas:
            status.set_desired(desired.replicas, is_scaled=False)
        elif await self._rescale(autoscaler, target, desired, status):
            behavior, now = autoscaler.spec.behavior, self._monotonic()
            history.scaled(target.replicas, desired.replicas, behavior, now)

    async def _rescale(
        self, autoscaler: HorizontalPodAutoscaler, target: Target, desired: Desired, status: Status
    ) -> bool:
        """Write the scale; return whether that succeeded."""
        message = f"New size: {desired.replicas}; reason: {desired.reason}"
        if desired.replicas == 0:
            # Written first: without this condition zero replicas mean that scaling is disabled.
            _set_scaled_to_zero(0, status)
            await self._write(autoscaler, status)
        self._check(autoscaler)
        try:
            await targets.rescale(self._client, target, desired.replicas)
        except Conflict:
            raise  # somebody else scaled it: sync again
        except ApiError as error:
            self._warn(autoscaler, "FailedRescale", f"{message}; error: {error}")
            text = f"the HPA controller was unable to update the target scale: {error}"
            status.set_condition(ABLE, "FailedUpdateScale", text, is_true=False)
            return False
        text = f"the HPA controller was able to update the target scale to {desired.replicas}"
        status.set_condition(ABLE, "SucceededRescale", text)
        status.set_desired(desired.replicas, is_scaled=True)
        _set_scaled_to_zero(desired.replicas, status)
        self._recorder.event(autoscaler, "Normal", "SuccessfulRescale", message)
        return True

    def _check(self, autoscaler: HorizontalPodAutoscaler) -> None:
        """Raise Conflict if the autoscaler was changed or deleted meanwhile."""
        found = self.autoscalers.get(key_of(autoscaler))
        if found is None or is_being_deleted(found) or not _is_same(found, autoscaler):
            raise Conflict("the autoscaler was changed during its sync")

    async def _desired_replicas(
        self, autoscaler: HorizontalPodAutoscaler, target: Target, history: History, status: Status
    ) -> Desired:
        """Return the desired replicas. Raises NoNumber."""
        spec, current = autoscaler.spec, target.replicas
        maximum = spec.maxReplicas
        minimum = min(1 if spec.minReplicas is None else spec.minReplicas, maximum)
        if current == 0 and not status.is_true(SCALED_TO_ZERO):
            text = "scaling is disabled since the replica count of the target is zero"
            status.set_condition(ACTIVE, "ScalingDisabled", text, is_true=False)
            return Desired(0)
        if current > maximum:
            return Desired(maximum, "Current number of replicas above Spec.MaxReplicas")
        if current < minimum:
            return Desired(minimum, "Current number of replicas below Spec.MinReplicas")
        metric, metrics = await self._highest_proposal(autoscaler, target)
        text = f"the HPA was able to successfully calculate a replica count from {metric.name}"
        status.set_condition(ACTIVE, "ValidMetricFound", text)
        now, bounds = self._monotonic(), Bounds(current, minimum, maximum)
        outcome = normalize(metric.replicas, bounds, spec.behavior, history, now)
        history.recommend(metric.replicas, spec.behavior, now)
        status.set_condition(ABLE, *outcome.able)
        status.set_condition(LIMITED, *outcome.limit, is_true=outcome.is_limited)
        return Desired(outcome.replicas, _reason(outcome.replicas, metric, current), metrics)

    async def _highest_proposal(
        self, autoscaler: HorizontalPodAutoscaler, target: Target
    ) -> tuple[MetricProposal, list[Document]]:
        """Return the metric that proposes most, and the current value of each metric.

        While one of them is unavailable, the others may scale up, but not down. Raises NoNumber.
        """
        selector = self._selector(autoscaler, target)
        state = ScaleState(
            current=target.replicas,
            observed=target.observed,
            pods=self._pods(autoscaler, selector),
            now=self._clock(),
            tolerance=tolerance_of(autoscaler),
        )
        namespace = key_of(autoscaler).namespace
        proposals = Proposals(self._metrics, namespace, target.selector, state)
        results = await proposals.evaluate_all(autoscaler.spec.metrics or ())
        valid = [each for each in results if isinstance(each, MetricProposal)]
        invalid = [each for each in results if isinstance(each, InvalidMetric)]
        metrics = [each.status if isinstance(each, MetricProposal) else UNKNOWN for each in results]
        is_early = self._monotonic() - self._started < EARLY_SECONDS
        reported = [each for each in invalid if not (is_early and each.is_unmeasured)]
        for error in reported:
            self._warn(autoscaler, error.reason, error.message)
        best = max(valid, key=lambda each: each.replicas, default=None)
        if best is not None and (not invalid or best.replicas >= target.replicas):
            return best, metrics
        raise _unknown(invalid, metrics, is_early=bool(invalid) and not reported)

    def _selector(self, autoscaler: HorizontalPodAutoscaler, target: Target) -> LabelSelector:
        """Return the selector of the target's pods. Raises NoNumber."""
        if not target.selector:
            text = "selector is required"
            self._warn(autoscaler, "SelectorRequired", text)
            raise NoReplicaCount(
                "InvalidSelector", "the HPA target's scale is missing a selector", text
            )
        try:
            return parse_labels(target.selector)
        except BadRequest as error:
            text = "couldn't convert selector into a corresponding internal selector object: "
            text += str(error)
            self._warn(autoscaler, "InvalidSelector", text)
            raise NoReplicaCount("InvalidSelector", text, text) from None

    def _pods(self, autoscaler: HorizontalPodAutoscaler, selector: LabelSelector) -> list[Pod]:
        """Return the selected pods, unless another autoscaler selects one of them.

        Raises NoNumber.
        """
        key = key_of(autoscaler)
        self._conflicts.set(key, selector)
        pods = [
            pod
            for pod in self.pods.indexed(by_namespace, key.namespace)
            if selector.matches(labels_of(pod))
        ]
        others = self._conflicts.of(pods)
        if len(others) > 1:
            named = " ".join(map(str, others))
            text = f"pods by selector {selector} are controlled by multiple HPAs: [{named}]"
            self._warn(autoscaler, "AmbiguousSelector", text)
            raise NoReplicaCount("AmbiguousSelector", text, text)
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
                self._forget(key_of(new))  # recommendations for another target do not apply
            if not _is_same(old, new):
                self.queue.add(key_of(new))
        elif old is not None:
            self._forget(key_of(old))

    def _forget(self, key: Key) -> None:
        self._histories.pop(key, None)
        self._conflicts.forget(key)


def _is_same(one: HorizontalPodAutoscaler, other: HorizontalPodAutoscaler) -> bool:
    return uid_of(one) == uid_of(other) and one.spec == other.spec


def _reason(replicas: int, metric: MetricProposal, current: int) -> str:
    """Return why the number of replicas changes."""
    if replicas < current:
        return "All metrics below target"
    if metric.replicas > current:
        return f"{metric.name} above target"
    return "Current number of replicas below a recent recommendation"


def _unknown(
    invalid: Sequence[InvalidMetric], metrics: Sequence[Document], *, is_early: bool
) -> NoReplicaCount:
    """Return the error where too few metrics are available to decide."""
    if not invalid:
        text = "the autoscaler has no metrics"
        return NoReplicaCount("InvalidMetricSourceType", text, text)
    first = invalid[0]
    event_message = (
        f"invalid metrics ({len(invalid)} invalid out of {len(metrics)}), first error is: "
    )
    message = f"the HPA was unable to compute the replica count: {first.message}"
    return NoReplicaCount(first.reason, message, event_message + first.summary, metrics, is_early)


def _set_scaled_to_zero(replicas: int, status: Status) -> None:
    """Set the condition ScaledToZero: what a user scaled to zero stays there."""
    if replicas == 0:
        text = "the HPA controller scaled the workload to zero"
        status.set_condition(SCALED_TO_ZERO, "ScaledToZero", text)
    else:
        text = "the HPA controller did not scale the workload to zero"
        status.set_condition(SCALED_TO_ZERO, "NotScaledToZero", text, is_true=False)
