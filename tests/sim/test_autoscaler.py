"""Autoscalers in a whole cluster under virtual time: loads, silence, quarrels, and restarts."""

import asyncio
from itertools import pairwise

import pytest
from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler as Autoscaler
from lightkube.models.core_v1 import Event, Pod
from tests.sim.cluster import Cluster, Faults, cluster, replica_set
from tests.sim.pools import pool

from corral.api.errors import Forbidden, NotFound, Unavailable
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.usage import PodMetrics
from corral.api.object import Key
from corral.client.client import Client
from corral.cluster.autoscaler import autoscaler as loop, metrics_client, targets
from corral.cluster.autoscaler.autoscaler import EARLY_SECONDS, FIRST_SECONDS, SYNC_SECONDS
from corral.cluster.autoscaler.behavior import DOWN_WINDOW_SECONDS
from corral.cluster.autoscaler.metrics_client import EXTERNAL, MetricsClient
from corral.cluster.autoscaler.replicas import MetricError, Unmeasured
from corral.node.hypervisor import Change
from corral.node.metrics.sampling.sampler import PERIOD_SECONDS

pytestmark = pytest.mark.looptime

TICK = 0.25
"""Seconds between two looks of a test."""
SETTLED = 400.0
"""Seconds after which pods have warmed up, and what was recommended at first is forgotten."""
SET = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "test"}
POOL = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web"}


def cpu(percent: int) -> dict:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def queue(average: str) -> dict:
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}


def autoscaler(name="lab", target=SET, least=1, most=2, **spec) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [cpu(75)],
            **spec,
        },
    }


class Queue:
    """Plays what answers for an external metric: at once, after so many seconds, or never."""

    def __init__(self, monkeypatch, length=0) -> None:
        self.length = length
        self.seconds = 0.0
        self.is_silent = False
        self._asked = asyncio.Event()
        monkeypatch.setattr(MetricsClient, "of_external", self.of_external)

    async def is_asked(self) -> None:
        """Wait until somebody asks anew."""
        self._asked.clear()
        await self._asked.wait()

    async def of_external(self, _namespace, metric) -> int:
        assert metric.name == "queue"
        self._asked.set()
        length = self.length
        await asyncio.sleep(self.seconds)
        if self.is_silent:
            raise MetricError("nobody looked")
        return length * 1000


class Scene:
    """A target, its autoscaler, and what a test asks of them."""

    def __init__(self, whole: Cluster, target=SET) -> None:
        self.whole = whole
        self.target = target
        self.view = ReplicaSet if target is SET else Pool

    async def begin(self, replicas=1, **spec) -> None:
        """Make the target, and its autoscaler with it."""
        await self.create(replicas)
        await self.whole.client.create(Autoscaler, autoscaler(target=self.target, **spec))

    async def create(self, replicas: int) -> None:
        make = replica_set if self.target is SET else pool
        await self.whole.client.create(self.view, make(self.target["name"], replicas))

    async def replicas(self) -> int:
        name = self.target["name"]
        return (await self.whole.client.get(self.view, name, "default")).spec.replicas

    async def has(self, replicas: int, seconds: float = 60.0) -> float:
        """Wait until the set has so many desired replicas; return the time."""

        async def are_desired() -> bool:
            return await self.replicas() == replicas

        await self.whole.until(are_desired, seconds, TICK)
        return now()

    async def stays(self, replicas: int, seconds: float) -> None:
        """Check that so many replicas are desired all the time."""
        until = now() + seconds
        while now() < until:
            assert await self.replicas() == replicas
            await asyncio.sleep(1)

    async def load(self, share: float) -> None:
        """Every guest that runs takes this much of a processor."""
        for machine in await self.whole.machines("default"):
            for guest in self.whole.guests(machine):
                guest.load = share

    async def get(self, name="lab") -> Autoscaler:
        return await self.whole.client.get(Autoscaler, name, "default")

    async def condition(self, kind: str, name="lab") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        status = (await self.get(name)).status
        for condition in (status and status.conditions) or ():
            if condition.type == kind:
                return condition.status, condition.reason, condition.message
        return "", "", ""

    async def says(self, kind: str, reason: str, name="lab", seconds: float = 60.0) -> str:
        """Wait until a condition has a reason; answers its message."""

        async def is_said() -> bool:
            return (await self.condition(kind, name))[1] == reason

        await self.whole.until(is_said, seconds, TICK)
        return (await self.condition(kind, name))[2]

    async def warnings(self, name="lab") -> list[Event]:
        return [one for one in await self.whole.events(name) if one.type == "Warning"]

    async def messages(self, reason: str, name="lab") -> list[str]:
        return [one.message for one in await self.whole.events(name) if one.reason == reason]


def now() -> float:
    return asyncio.get_running_loop().time()


async def crossed(whole: Cluster) -> float:
    """Wait until metrics show a busy pod; return the time."""

    async def is_busy() -> bool:
        found = await whole.client.list(PodMetrics, "default")
        return any(
            one.usage["cpu"] not in ("0", 0) for pod in found.items for one in pod.containers
        )

    await whole.until(is_busy, 2 * PERIOD_SECONDS + 1, TICK)
    return now()


# ---------------------------------------------------------------------- up and down


@pytest.mark.parametrize("target", [SET, POOL], ids=["set", "pool"])
async def test_a_load_scales_from_one_to_two_and_its_end_back(target):
    async with cluster() as whole:
        scene = Scene(whole, target)
        await scene.begin()
        await asyncio.sleep(SETTLED)
        assert await scene.replicas() == 1
        await scene.load(1.0)
        seen = await crossed(whole)
        assert await scene.has(2) - seen <= SYNC_SECONDS + TICK
        assert await scene.messages("SuccessfulRescale") == [
            "New size: 2; reason: cpu resource utilization (percentage of request) above target"
        ]
        limited = await scene.says("ScalingLimited", "TooManyReplicas")
        assert limited == "the desired replica count is more than the maximum replica count"
        status = (await scene.get()).status
        assert status.currentMetrics[0].resource.current.averageUtilization > 75
        assert status.lastScaleTime is not None
        await asyncio.sleep(60)
        await scene.load(0.0)

        async def is_idle() -> bool:
            metric = (await scene.get()).status.currentMetrics[0].resource.current
            return metric.averageUtilization <= 75 / 2

        await whole.until(is_idle, 60, TICK)
        last_busy = now() - SYNC_SECONDS
        gone = await scene.has(1, 2 * DOWN_WINDOW_SECONDS)
        assert gone - last_busy == pytest.approx(DOWN_WINDOW_SECONDS, abs=2 * TICK)
        assert (await scene.messages("SuccessfulRescale"))[-1] == (
            "New size: 1; reason: All metrics below target"
        )


async def test_idle_vmis_without_cpu_requests_are_not_scaled():
    """A guest that ticks 250 times a second takes 56m here and there: half of what it asks for."""
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(3, least=3, most=10)
        await whole.until_ready("test", 3)
        await scene.load(0.056)
        await scene.stays(3, SETTLED)
        current = (await scene.get()).status.currentMetrics[0].resource.current
        assert current.averageUtilization == pytest.approx(53, abs=1)


async def test_a_pending_scale_down_is_reported():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(2)
        message = await scene.says("AbleToScale", "ScaleDownStabilized", seconds=120)
        assert message.endswith("applying the highest recent recommendation")
        status = (await scene.get()).status
        assert (status.currentReplicas, status.desiredReplicas) == (2, 2)
        await scene.has(1, DOWN_WINDOW_SECONDS + 60)
        await scene.says("AbleToScale", "ReadyForNewScale")
        active = await scene.says("ScalingActive", "ValidMetricFound")
        assert active == (
            "the HPA was able to successfully calculate a replica count from cpu resource "
            "utilization (percentage of request)"
        )
        assert (await scene.condition("ScalingLimited"))[1] in (
            "TooFewReplicas",
            "DesiredWithinRange",
        )


async def test_an_unchanged_status_is_not_written():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        version = (await scene.get()).metadata.resourceVersion
        await asyncio.sleep(4 * SYNC_SECONDS)
        assert (await scene.get()).metadata.resourceVersion == version


async def test_a_changed_autoscaler_is_synced_at_once():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, most=9)
        await asyncio.sleep(SYNC_SECONDS + 1)
        change = {"spec": {"minReplicas": 3}}
        await whole.client.patch(Autoscaler, Key("default", "lab"), change)
        begun = now()
        assert await scene.has(3) - begun <= 2 * TICK
        change = {"spec": {"minReplicas": 1, "maxReplicas": 2}}
        await whole.client.patch(Autoscaler, Key("default", "lab"), change)
        begun = now()
        assert await scene.has(2) - begun <= 2 * TICK
        assert await scene.messages("SuccessfulRescale") == [
            "New size: 3; reason: Current number of replicas below Spec.MinReplicas",
            "New size: 2; reason: Current number of replicas above Spec.MaxReplicas",
        ]


async def test_behavior_limits_scaling():
    async with cluster() as whole:
        scene = Scene(whole)
        slow = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}]}
        quick = {"stabilizationWindowSeconds": 0}
        await scene.begin(1, most=9, behavior={"scaleUp": slow, "scaleDown": quick})
        await asyncio.sleep(SETTLED)
        await scene.load(1.0)
        first = await scene.has(2)
        assert (await scene.condition("ScalingLimited"))[1] == "ScaleUpLimit"
        second = await scene.has(3, 200)
        assert second - first == pytest.approx(120, abs=SYNC_SECONDS)
        await scene.load(0.0)
        begun = now()
        assert await scene.has(1, 60) - begun <= 2 * PERIOD_SECONDS + SYNC_SECONDS + TICK


# ---------------------------------------------------------------------- what is not known


async def test_missing_metrics_of_a_node_scale_nothing():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        await scene.load(1.0)
        await scene.has(2)
        await asyncio.sleep(DOWN_WINDOW_SECONDS)
        whole.kill_agent("node0")
        message = await scene.says("ScalingActive", "FailedGetResourceMetric")
        assert message == (
            "the HPA was unable to compute the replica count: failed to get cpu utilization: "
            "unable to get metrics for resource cpu: no metrics returned from resource metrics API"
        )
        assert (await scene.get()).status.currentMetrics[0].resource is None
        await asyncio.sleep(15)
        whole.start_node("node0")
        await scene.stays(2, 2 * DOWN_WINDOW_SECONDS)
        assert (await scene.condition("ScalingActive"))[1] == "ValidMetricFound"
        assert len(await scene.messages("SuccessfulRescale")) == 1


async def test_a_restart_of_the_agent_does_not_count_as_missing_metrics():
    """Nobody has looked at a guest twice in the first seconds: nothing that people need to know."""
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        metrics = (await scene.get()).status.currentMetrics
        assert metrics[0].resource is not None
        warned = len(await scene.warnings())
        await whole.crash_loops()
        whole.kill_agent("node0")
        whole.start_node("node0")
        whole.start_loops()
        until = now() + EARLY_SECONDS
        while now() < until:
            assert (await scene.condition("ScalingActive"))[:2] == ("True", "ValidMetricFound")
            assert (await scene.get()).status.currentMetrics == metrics
            await asyncio.sleep(1)
        assert len(await scene.warnings()) == warned
        await scene.load(1.0)
        await scene.has(2)
        whole.kill_agent("node0")
        await scene.says("ScalingActive", "FailedGetResourceMetric")
        assert {one.reason for one in (await scene.warnings())[warned:]} == {
            "FailedGetResourceMetric",
            "FailedComputeMetricsReplicas",
        }


async def test_in_the_first_seconds_a_missing_metric_is_no_warning(monkeypatch):
    async def say_nothing(*_arguments):
        raise Unmeasured("no metrics returned from resource metrics API")

    monkeypatch.setattr(MetricsClient, "of_pods", say_nothing)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await scene.says("ScalingActive", "FailedGetResourceMetric", seconds=EARLY_SECONDS - 1)
        assert await scene.warnings() == []
        await asyncio.sleep(EARLY_SECONDS + SYNC_SECONDS)
        assert len(await scene.warnings()) == 2


async def test_after_long_missing_metrics_the_stabilization_window_still_counts(monkeypatch):
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        await scene.load(1.0)
        await scene.has(2)
        await scene.says("ScalingLimited", "TooManyReplicas")

        async def say_nothing(*_arguments):
            raise MetricError("nobody looked")

        with monkeypatch.context() as silenced:
            silenced.setattr(MetricsClient, "of_pods", say_nothing)
            await scene.load(0.0)
            await scene.stays(2, 3 * DOWN_WINDOW_SECONDS)
        begun = now()
        assert (
            await scene.has(1, 2 * DOWN_WINDOW_SECONDS) - begun
            >= DOWN_WINDOW_SECONDS - SYNC_SECONDS
        )


async def test_recommendations_from_before_missing_metrics_scale_nothing_up(monkeypatch):
    waiting = Queue(monkeypatch, 6)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(6, most=10, metrics=[queue("1")])
        await asyncio.sleep(60)
        waiting.is_silent = True
        await asyncio.sleep(3600)
        await whole.scale("test", 2)
        await scene.stays(2, 60)
        waiting.is_silent, waiting.length = False, 2
        await scene.stays(2, DOWN_WINDOW_SECONDS)
        assert await scene.messages("SuccessfulRescale") == []


async def test_a_recent_recommendation_reverts_a_manual_scale_down(monkeypatch):
    waiting = Queue(monkeypatch, 4)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(4, most=10, metrics=[queue("1")])
        await asyncio.sleep(60)
        waiting.length = 2
        await whole.scale("test", 2)
        await scene.has(4)
        assert await scene.messages("SuccessfulRescale") == [
            "New size: 4; reason: Current number of replicas below a recent recommendation"
        ]


async def test_a_low_recommendation_from_before_missing_metrics_delays_no_scale_up(monkeypatch):
    waiting = Queue(monkeypatch, 1)
    async with cluster() as whole:
        scene = Scene(whole)
        behavior = {"scaleUp": {"stabilizationWindowSeconds": 120}}
        await scene.begin(1, most=3, metrics=[queue("1")], behavior=behavior)
        await asyncio.sleep(60)
        waiting.is_silent = True
        await asyncio.sleep(600)
        waiting.is_silent, waiting.length = False, 3
        begun = now()
        assert await scene.has(3, 300) - begun <= SYNC_SECONDS + TICK


async def test_a_paused_vmi_does_not_count_as_idle():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        await scene.load(1.0)
        await scene.has(2)
        await whole.until_ready("test", 2)
        await asyncio.sleep(SETTLED)
        await scene.load(0.1)
        await asyncio.sleep(60)
        paused, running = await whole.machines("default")
        whole.guest(paused).load = 0.0
        whole.guest(paused).happen(Change.PAUSED)
        await scene.stays(2, 2 * DOWN_WINDOW_SECONDS)
        whole.guest(running).load = 0.0
        await scene.stays(2, 2 * DOWN_WINDOW_SECONDS)
        whole.guest(paused).happen(Change.RESUMED)
        await scene.has(1, DOWN_WINDOW_SECONDS + 60)


async def test_a_pod_without_requests_is_named_in_the_condition():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        stray = {
            "metadata": {"name": "stray", "namespace": "default", "labels": {"app": "test"}},
            "spec": {"containers": [{"name": "main", "image": "main"}], "schedulerName": "none"},
        }
        await whole.client.create(Pod, stray)
        message = await scene.says("ScalingActive", "FailedGetResourceMetric")
        assert message.endswith("missing request for cpu in container main of Pod stray")
        assert (await scene.messages("FailedComputeMetricsReplicas"))[-1] == (
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource "
            "metric value: failed to get cpu utilization: missing request for cpu in container "
            "main of Pod stray"
        )


async def test_an_unavailable_metric_prevents_a_scale_down_by_others():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(2, metrics=[queue("1"), cpu(75)], most=4)
        await scene.says("ScalingActive", "FailedGetExternalMetric", seconds=120)
        await scene.stays(2, DOWN_WINDOW_SECONDS + 60)
        metrics = (await scene.get()).status.currentMetrics
        assert [one.type for one in metrics] == ["", "Resource"]
        await scene.load(1.0)
        await scene.has(4)
        assert (await scene.condition("ScalingActive"))[1] == "ValidMetricFound"


# ---------------------------------------------------------------------- targets and quarrels


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (SET, 'virtualmachineinstancereplicasets.kubevirt.io "test" not found'),
        (
            {"apiVersion": "example.com/v1", "kind": "Crowd", "name": "web"},
            'no matches for kind "Crowd" in group "example.com"',
        ),
    ],
)
async def test_a_missing_target_is_reported(target, message):
    async with cluster() as whole:
        scene = Scene(whole)
        await whole.client.create(Autoscaler, autoscaler(target=target))
        text = "the HPA controller was unable to get the target's current scale: "
        assert await scene.says("AbleToScale", "FailedGetScale") == text + message
        assert await scene.messages("FailedGetScale") == [message]
        assert (await scene.condition("AbleToScale"))[0] == "False"


async def test_a_target_created_later_is_found():
    async with cluster() as whole:
        scene = Scene(whole)
        await whole.client.create(Autoscaler, autoscaler(least=2))
        await scene.says("AbleToScale", "FailedGetScale")
        await scene.create(1)
        await scene.has(2, SYNC_SECONDS + TICK)


async def test_a_target_without_scale_is_reported():
    async with cluster() as whole:
        scene = Scene(whole)
        target = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "name": "any"}
        await whole.client.create(Autoscaler, autoscaler(target=target))
        message = await scene.says("AbleToScale", "FailedGetScale")
        assert message.endswith("the server could not find the requested resource")


async def test_a_rejected_update_of_the_scale_is_reported(monkeypatch):
    async def refuse(*_arguments):
        raise Forbidden("the set may not be scaled")

    async with cluster() as whole:
        scene = Scene(whole)
        with monkeypatch.context() as refusing:
            refusing.setattr(targets, "rescale", refuse)
            await scene.begin(1, least=2)
            message = await scene.says("AbleToScale", "FailedUpdateScale")
            text = "the HPA controller was unable to update the target scale: "
            assert message == f"{text}the set may not be scaled"
            assert (await scene.messages("FailedRescale"))[-1] == (
                "New size: 2; reason: Current number of replicas below Spec.MinReplicas; "
                "error: the set may not be scaled"
            )
            status = (await scene.get()).status
            assert (status.currentReplicas, status.lastScaleTime) == (1, None)
        await scene.has(2, SYNC_SECONDS + TICK)
        message = await scene.says("AbleToScale", "SucceededRescale")
        assert message == "the HPA controller was able to update the target scale to 2"


async def test_two_autoscalers_of_one_target_only_report_the_conflict():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, most=4)
        await asyncio.sleep(SETTLED)
        await whole.client.create(Autoscaler, autoscaler("other", least=1, most=9))
        for name in ("lab", "other"):
            message = await scene.says("ScalingActive", "AmbiguousSelector", name)
            assert message == (
                "pods by selector app=test are controlled by multiple HPAs: "
                "[default/lab default/other]"
            )
        await scene.load(1.0)
        await scene.stays(1, 90)
        await whole.client.delete(Autoscaler, Key("default", "other"))
        await scene.has(4)


async def test_an_autoscaler_deleted_during_the_sync_is_no_rival(monkeypatch):
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        read, reading = targets.read, asyncio.Event()

        async def read_slowly(*arguments):
            reading.set()
            await asyncio.sleep(5)
            return await read(*arguments)

        with monkeypatch.context() as slow:
            slow.setattr(targets, "read", read_slowly)
            await whole.client.create(Autoscaler, autoscaler("other"))
            await asyncio.sleep(FIRST_SECONDS)
            await asyncio.wait_for(reading.wait(), SYNC_SECONDS)
            await asyncio.sleep(1)
            await whole.client.delete(Autoscaler, Key("default", "other"))
            await asyncio.sleep(10)
        await scene.load(1.0)
        await scene.has(2)
        await asyncio.sleep(SYNC_SECONDS)
        assert (await scene.condition("ScalingActive"))[1] == "ValidMetricFound"


async def test_recommendations_for_one_target_do_not_count_for_another():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, most=4)
        await asyncio.sleep(SETTLED)
        await scene.load(1.0)
        await scene.has(4)
        await whole.until_ready("test", 4)
        await whole.client.create(ReplicaSet, replica_set("idle", 1))
        await asyncio.sleep(60)
        change = {"spec": {"scaleTargetRef": {**SET, "name": "idle"}}}
        await whole.client.patch(Autoscaler, Key("default", "lab"), change)
        await asyncio.sleep(60)
        assert (await whole.replica_set("idle")).spec.replicas == 1
        assert await scene.replicas() == 4


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "retargeted"])
async def test_an_autoscaler_changed_during_the_sync_scales_nothing(monkeypatch, is_deleted):
    waiting = Queue(monkeypatch, 6)
    async with cluster() as whole:
        scene = Scene(whole)
        await whole.client.create(ReplicaSet, replica_set("idle", 1))
        await scene.begin(6, most=10, metrics=[queue("1")])
        await asyncio.sleep(60)
        waiting.length, waiting.seconds = 1, 8.0
        await waiting.is_asked()
        key = Key("default", "lab")
        if is_deleted:
            await whole.client.delete(Autoscaler, key)
        else:
            change = {"spec": {"scaleTargetRef": {**SET, "name": "idle"}}}
            await whole.client.patch(Autoscaler, key, change)
        await scene.stays(6, 60)
        # Recommendations by the old target's metrics hold the new one at nothing.
        assert (await whole.replica_set("idle")).spec.replicas == 1
        assert await scene.messages("SuccessfulRescale") == []


async def test_an_autoscaler_deleted_during_the_read_of_its_target_scales_nothing(monkeypatch):
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        read, reading = targets.read, asyncio.Event()

        async def read_slowly(*arguments):
            reading.set()
            target = await read(*arguments)
            await asyncio.sleep(5)
            return target

        monkeypatch.setattr(targets, "read", read_slowly)
        await whole.client.patch(Autoscaler, Key("default", "lab"), {"spec": {"minReplicas": 2}})
        await reading.wait()
        await whole.client.delete(Autoscaler, Key("default", "lab"))
        await scene.stays(1, 60)


async def test_a_temporarily_unreadable_target_still_counts_for_its_rival(monkeypatch):
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, most=4)
        target = {**SET, "apiVersion": "kubevirt.io/v1alpha3"}
        await whole.client.create(Autoscaler, autoscaler("other", target))
        await scene.says("ScalingActive", "AmbiguousSelector", "other")
        await asyncio.sleep(SETTLED)
        read = targets.read

        async def read_or_fail(client, kinds, namespace, reference):
            if reference.apiVersion == target["apiVersion"]:
                raise Unavailable("not now")
            return await read(client, kinds, namespace, reference)

        monkeypatch.setattr(targets, "read", read_or_fail)
        await scene.says("AbleToScale", "FailedGetScale", "other")
        await scene.load(1.0)
        await scene.stays(1, 90)
        await whole.client.delete(Autoscaler, Key("default", "other"))
        await scene.has(4)


async def test_a_hanging_metrics_api_delays_no_other_autoscaler(monkeypatch):
    ask, of_pods = Client.request, MetricsClient.of_pods
    looks: list[float] = []

    async def hang(client, method, path, **given):
        if path.startswith(EXTERNAL):
            await asyncio.sleep(3600)
        return await ask(client, method, path, **given)

    async def look(*arguments):
        looks.append(now())
        return await of_pods(*arguments)

    monkeypatch.setattr(Client, "request", hang)
    monkeypatch.setattr(MetricsClient, "of_pods", look)
    monkeypatch.setattr(metrics_client, "MAX_CONCURRENT", 2)
    monkeypatch.setattr(loop, "WORKERS", 8)
    async with cluster() as whole:
        for number in range(4 * loop.WORKERS):
            name = f"hangs-{number}"
            await whole.client.create(ReplicaSet, replica_set(name, 1))
            document = autoscaler(name, {**SET, "name": name}, metrics=3 * [queue("1")])
            await whole.client.create(Autoscaler, document)
        await Scene(whole).begin(1)
        await asyncio.sleep(SETTLED)
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert sum(gaps) > SETTLED - 2 * SYNC_SECONDS
    assert max(gaps) <= 1.5 * SYNC_SECONDS


# ---------------------------------------------------------------------- none at all


async def test_an_empty_queue_scales_to_zero_and_a_full_one_back(monkeypatch):
    waiting = Queue(monkeypatch)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, least=0, most=5, metrics=[queue("1")])
        await scene.has(0, DOWN_WINDOW_SECONDS + 60)
        message = await scene.says("ScaledToZero", "ScaledToZero")
        assert message == "the HPA controller scaled the workload to zero"
        await scene.stays(0, 60)
        waiting.length = 3
        begun = now()
        assert await scene.has(3) - begun <= SYNC_SECONDS + TICK
        await scene.says("ScaledToZero", "NotScaledToZero")
        assert (await scene.messages("SuccessfulRescale"))[-1] == (
            "New size: 3; reason: external metric queue(nil) above target"
        )
        await whole.until_ready("test", 3)
        waiting.length = 0
        await scene.has(0, DOWN_WINDOW_SECONDS + 60)
        # Who wants one at the least again gets it, though there is none.
        change = {"spec": {"minReplicas": 2}}
        await whole.client.patch(Autoscaler, Key("default", "lab"), change)
        await scene.has(2)


@pytest.mark.parametrize("least", [0, 1])
async def test_a_target_scaled_to_zero_by_a_user_stays_at_zero(monkeypatch, least):
    waiting = Queue(monkeypatch, 3)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, least=least, most=5, metrics=[queue("1")])
        await scene.has(3)
        await whole.until_ready("test", 3)
        await whole.scale("test", 0)
        message = await scene.says("ScalingActive", "ScalingDisabled")
        assert message == "scaling is disabled since the replica count of the target is zero"
        waiting.length = 5
        await scene.stays(0, 120)
        assert (await scene.get()).status.currentMetrics is None
        await whole.scale("test", 1)
        await scene.has(5)
        await scene.says("ScalingActive", "ValidMetricFound", seconds=120)


async def test_a_target_scaled_up_and_to_zero_again_by_a_user_stays_at_zero(monkeypatch):
    waiting = Queue(monkeypatch)
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, least=0, most=5, metrics=[queue("1")])
        await scene.has(0, DOWN_WINDOW_SECONDS + 60)
        await whole.scale("test", 2)
        waiting.length = 2
        await scene.says("ScaledToZero", "NotScaledToZero")
        await whole.scale("test", 0)
        waiting.length = 3
        await scene.says("ScalingActive", "ScalingDisabled")
        await scene.stays(0, 60)


async def test_a_scale_to_zero_interrupted_by_a_crash_can_scale_up_again(monkeypatch):
    waiting, rescale = Queue(monkeypatch), targets.rescale

    async def rescale_and_fail(*arguments):
        await rescale(*arguments)
        raise Unavailable("the answer is lost")

    async with cluster() as whole:
        scene = Scene(whole)
        with monkeypatch.context() as cut:
            cut.setattr(targets, "rescale", rescale_and_fail)
            await scene.begin(1, least=0, most=5, metrics=[queue("1")])
            await scene.has(0, DOWN_WINDOW_SECONDS + 60)
            await whole.crash_loops()
        whole.start_loops()
        waiting.length = 3
        await scene.has(3)


async def test_each_rescale_records_whether_it_scaled_to_zero():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1, least=2)
        message = await scene.says("ScaledToZero", "NotScaledToZero")
        assert message == "the HPA controller did not scale the workload to zero"
        assert (await scene.condition("ScaledToZero"))[0] == "False"


# ---------------------------------------------------------------------- cuts and faults


async def test_a_new_controller_waits_for_the_stabilization_window():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(2)
        await asyncio.sleep(DOWN_WINDOW_SECONDS - 30)
        await whole.crash_loops()
        whole.start_loops()
        begun = now()
        assert await scene.has(1, DOWN_WINDOW_SECONDS + 60) - begun >= DOWN_WINDOW_SECONDS - 1


@pytest.mark.parametrize("seed", range(4))
async def test_replicas_follow_the_load_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.02, double=0.05, until=450)
    async with cluster(faults=faults) as whole:
        scene = Scene(whole)
        await scene.begin(1, most=3)
        await asyncio.sleep(SETTLED)
        for _ in range(5):
            await whole.crash_loops()
            whole.start_loops()
            await scene.load(1.0)
            await asyncio.sleep(11)
        await scene.has(3, 120)
        await whole.until_ready("test", 3)
        await scene.load(0.0)
        await scene.has(1, DOWN_WINDOW_SECONDS + 120)
        await whole.until_ready("test", 1)
        sizes = [message.split(";")[0] for message in await scene.messages("SuccessfulRescale")]
        assert set(sizes) <= {"New size: 1", "New size: 2", "New size: 3"}


async def test_state_of_a_deleted_autoscaler_is_dropped():
    async with cluster() as whole:
        scene = Scene(whole)
        await scene.begin(1)
        await asyncio.sleep(SETTLED)
        await whole.client.delete(Autoscaler, Key("default", "lab"))
        await scene.load(1.0)
        await scene.stays(1, 60)
        with pytest.raises(NotFound):
            await scene.get()
