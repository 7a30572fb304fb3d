"""Controller of budgets: updates the status when pods or their controllers change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightkube.models.core_v1 import Pod
from lightkube.models.policy_v1 import PodDisruptionBudget

from corral.api.kinds.pod_disruption_budget import selector_of
from corral.api.object import Document, Key
from corral.cluster.disruption import allowed_disruptions
from corral.cluster.disruption.expected_pods import ExpectedPods, fingerprint
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, version_of
from corral.reconcile.pod_owners import PodOwner
from corral.reconcile.workqueue import WorkQueue

if TYPE_CHECKING:
    from corral.api.selectors import LabelSelector

COMPONENT = "controllermanager"
BATCH_SECONDS = 0.05
"""Minimum delay of a sync after a change of pods. For budgets with many pods it is as long as
counting takes: a tenth of a second for a thousand."""
PODS_A_SECOND = 10_000


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Budgets(context)
    return Controller("disruption", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Budgets:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.budgets = context.informers.of(PodDisruptionBudget)
        self.pods = context.informers.of(Pod)
        self.pod_owners = ExpectedPods(context)
        self.sources: list[Source] = [self.budgets, self.pods, *self.pod_owners.informers]
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder(COMPONENT)
        self._selectors: dict[Key, LabelSelector] = {}
        self._delays: dict[Key, float] = {}
        self.budgets.index(by_namespace)
        self.pods.index(by_namespace)
        self.budgets.handle(self._budget_changed)
        self.pods.handle(self._pod_changed)
        for informer in self.pod_owners.informers:
            informer.handle(self._pod_owner_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync the status of one budget."""
        budget = self.budgets.get(key)
        if budget is None:
            return None
        pods = [
            pod
            for pod in self.pods.indexed(by_namespace, key.namespace)
            if self._selectors[key].matches(labels_of(pod))
        ]
        self._delays[key] = max(BATCH_SECONDS, len(pods) / PODS_A_SECOND)
        now = self._clock()
        evicted = allowed_disruptions.unconfirmed(budget, pods, now)
        try:
            count, events = self._expected(budget, pods)
            status = allowed_disruptions.status(budget, pods, count, evicted, now)
        except (LookupError, ValueError) as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            events = [("Warning", "CalculateExpectedPodCountFailed", text)]
            status = allowed_disruptions.failed(budget, str(error), now)
        for pod in evicted.overdue:
            text = f"Pod was expected by PDB {key} to be deleted but it wasn't"
            self._recorder.event(pod, "Warning", "NotDeleted", text)
        if (change := allowed_disruptions.patch(budget, status)) is not None:
            for event in events:
                self._recorder.event(budget, *event)
            await self._write(budget, change)
        return None if evicted.next_seconds is None else Result(requeue_after=evicted.next_seconds)

    def _expected(
        self, budget: PodDisruptionBudget, pods: Sequence[Pod]
    ) -> tuple[int, list[tuple[str, str, str]]]:
        """Return the number of expected pods, and events: type, reason, message.

        Raises LookupError for a pod whose controller is not found.
        """
        events = [] if pods else [("Normal", "NoPods", "No matching pods found")]
        if not allowed_disruptions.needs_scale(budget.spec):
            return len(pods), events
        key = key_of(budget)
        selector = self._selectors[key]
        count, unmanaged = self.pod_owners.expected(pods, key.namespace, selector)
        if unmanaged:
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to "
                "be unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.'
            )
            events.append(("Warning", "UnmanagedPods", text))
        return count, events

    async def _write(self, budget: PodDisruptionBudget, status: Document) -> None:
        """Write the status, guarded by the resource version: evictions write it, too."""
        change = {"metadata": {"resourceVersion": version_of(budget)}, "status": status}
        await self._client.patch(PodDisruptionBudget, key_of(budget), change, subresource="status")

    # -- event handlers -----------------------------------------------------------------------

    def _budget_changed(
        self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None
    ) -> None:
        if new is None:
            assert old is not None
            self._selectors.pop(key_of(old), None)
            self._delays.pop(key_of(old), None)
            return
        self._selectors[key_of(new)] = selector_of(new)
        self.queue.add(key_of(new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _fingerprint(old) == _fingerprint(new):
            return
        for pod in (old, new):
            if pod is not None:
                for key in self._budgets_of(pod):
                    self._enqueue(key)
        if new is not None and (old is None or labels_of(old) != labels_of(new)):
            self._warn_of_overlap(new)

    def _warn_of_overlap(self, pod: Pod) -> None:
        budgets = self._budgets_of(pod)
        if len(budgets) > 1:
            key = key_of(pod)
            text = (
                f'Pod "{key.namespace}"/"{key.name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{budgets[0].name}" arbitrarily.'
            )
            self._recorder.event(pod, "Warning", "MultiplePodDisruptionBudgets", text)

    def _pod_owner_changed(self, old: PodOwner | None, new: PodOwner | None) -> None:
        pod_owner = new or old
        assert pod_owner is not None
        budgets = self.budgets.indexed(by_namespace, pod_owner.metadata.namespace)
        affected = [each for each in budgets if allowed_disruptions.needs_scale(each.spec)]
        if not affected or (
            old is not None and new is not None and fingerprint(old) == fingerprint(new)
        ):
            return
        for budget in affected:
            self._enqueue(key_of(budget))

    def _budgets_of(self, pod: Pod) -> list[Key]:
        labels = labels_of(pod)
        found = self.budgets.indexed(by_namespace, key_of(pod).namespace)
        keys = sorted(key_of(budget) for budget in found)
        return [key for key in keys if self._selectors[key].matches(labels)]

    def _enqueue(self, key: Key) -> None:
        self.queue.add_after(key, self._delays.get(key, BATCH_SECONDS))


def _fingerprint(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod that matter to budgets."""
    return labels_of(pod), is_being_deleted(pod), allowed_disruptions.is_healthy(pod)
