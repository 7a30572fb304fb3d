"""The loop of budgets: reckons each anew when its pods, or what they come from, change."""

from collections.abc import Sequence

import msgspec
from lightkube.models.core_v1 import Pod
from lightkube.models.policy_v1 import PodDisruptionBudget

from corral.api.errors import BadRequest
from corral.api.object import Document, Key
from corral.api.selectors import NOTHING, LabelSelector, label_selector
from corral.cluster.disruption import allowed_disruptions
from corral.cluster.disruption.expected_pods import Maker, Makers, facts
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.objects import is_being_deleted, key_of, labels_of, version_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "controllermanager"
BATCH_SECONDS = 0.05
"""Changes of a budget's pods wait for so long for more of their kind; where it has many pods, for
as long as counting so many takes: a thousand take a tenth of a second."""
PODS_A_SECOND = 10_000


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of PodDisruptionBudgets."""
    loop = Budgets(context)
    return Controller("disruption", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Budgets:
    """The budgets, their pods, and what these come from."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.budgets = context.informers.of(PodDisruptionBudget)
        self.pods = context.informers.of(Pod)
        self.makers = Makers(context)
        self.sources: list[Source] = [self.budgets, self.pods, *self.makers.informers]
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder(COMPONENT)
        self._selectors: dict[Key, LabelSelector] = {}
        self._pauses: dict[Key, float] = {}
        self.budgets.index("namespace", lambda budget: (key_of(budget).namespace,))
        self.pods.index("namespace", lambda pod: (key_of(pod).namespace,))
        self.budgets.handle(self._budget_changed)
        self.pods.handle(self._pod_changed)
        for informer in self.makers.informers:
            informer.handle(self._maker_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Say what one budget allows now."""
        budget = self.budgets.get(key)
        if budget is None:
            return None
        pods = [
            pod
            for pod in self.pods.indexed("namespace", key.namespace)
            if self._selectors[key].matches(labels_of(pod))
        ]
        self._pauses[key] = max(BATCH_SECONDS, len(pods) / PODS_A_SECOND)
        now = self._clock()
        going = allowed_disruptions.unconfirmed(budget, pods, now)
        try:
            count, remarks = self._expected(budget, pods)
            status = allowed_disruptions.status(budget, pods, count, going, now)
        except (LookupError, ValueError) as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            remarks = [("Warning", "CalculateExpectedPodCountFailed", text)]
            status = allowed_disruptions.failed(budget, str(error), now)
        for pod in going.overdue:
            text = f"Pod was expected by PDB {key} to be deleted but it wasn't"
            self._recorder.event(pod, "Warning", "NotDeleted", text)
        if (change := allowed_disruptions.patch(budget, status)) is not None:
            for remark in remarks:
                self._recorder.event(budget, *remark)
            await self._write(budget, change)
        return None if going.next_seconds is None else Result(requeue_after=going.next_seconds)

    def _expected(
        self, budget: PodDisruptionBudget, pods: Sequence[Pod]
    ) -> tuple[int, list[tuple[str, str, str]]]:
        """How many pods there should be, and what people are told of them: type, reason, message.

        Raises LookupError for a pod whose maker is not known.
        """
        remarks = [] if pods else [("Normal", "NoPods", "No matching pods found")]
        if not allowed_disruptions.needs_scale(budget.spec):
            return len(pods), remarks
        key = key_of(budget)
        selector = self._selectors[key]
        count, unmanaged = self.makers.expected(pods, key.namespace, selector)
        if unmanaged:
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to "
                "be unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.'
            )
            remarks.append(("Warning", "UnmanagedPods", text))
        return count, remarks

    async def _write(self, budget: PodDisruptionBudget, status: Document) -> None:
        """Never over an eviction that was allowed in the meantime: the version has to match."""
        change = {"metadata": {"resourceVersion": version_of(budget)}, "status": status}
        await self._client.patch(PodDisruptionBudget, key_of(budget), change, subresource="status")

    # -- news ---------------------------------------------------------------------------------

    def _budget_changed(
        self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None
    ) -> None:
        if new is None:
            assert old is not None
            self._selectors.pop(key_of(old), None)
            self._pauses.pop(key_of(old), None)
            return
        self._selectors[key_of(new)] = _selector(new)
        self.queue.add(key_of(new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _facts(old) == _facts(new):
            return
        for pod in (old, new):
            if pod is not None:
                for key in self._budgets_of(pod):
                    self._look(key)
        if new is not None and (old is None or labels_of(old) != labels_of(new)):
            self._tell_of_several(new)

    def _tell_of_several(self, pod: Pod) -> None:
        budgets = self._budgets_of(pod)
        if len(budgets) > 1:
            key = key_of(pod)
            text = (
                f'Pod "{key.namespace}"/"{key.name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{budgets[0].name}" arbitrarily.'
            )
            self._recorder.event(pod, "Warning", "MultiplePodDisruptionBudgets", text)

    def _maker_changed(self, old: Maker | None, new: Maker | None) -> None:
        maker = new or old
        assert maker is not None
        budgets = self.budgets.indexed("namespace", maker.metadata.namespace)
        concerned = [each for each in budgets if allowed_disruptions.needs_scale(each.spec)]
        if not concerned or (old is not None and new is not None and facts(old) == facts(new)):
            return
        for budget in concerned:
            self._look(key_of(budget))

    def _budgets_of(self, pod: Pod) -> list[Key]:
        labels = labels_of(pod)
        found = self.budgets.indexed("namespace", key_of(pod).namespace)
        keys = sorted(key_of(budget) for budget in found)
        return [key for key in keys if self._selectors[key].matches(labels)]

    def _look(self, key: Key) -> None:
        self.queue.add_after(key, self._pauses.get(key, BATCH_SECONDS))


def _selector(budget: PodDisruptionBudget) -> LabelSelector:
    """The pods that a budget is about; none where that cannot be read."""
    try:
        selector = budget.spec.selector if budget.spec is not None else None
        return label_selector(None if selector is None else msgspec.to_builtins(selector))
    except BadRequest:  # stored before its rules were checked
        return NOTHING


def _facts(pod: Pod) -> tuple[object, ...]:
    """What of a pod its budgets depend on."""
    return labels_of(pod), is_being_deleted(pod), allowed_disruptions.is_healthy(pod)
