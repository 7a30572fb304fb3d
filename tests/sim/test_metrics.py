"""Metrics while sets and VirtualMachines live, in virtual time."""

import asyncio
from pathlib import Path

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.migrations import in_phase, migrate, slow, started

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet

pytestmark = pytest.mark.looptime


async def test_a_vmi_has_metrics_as_long_as_it_exists():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        metrics = await c.metrics()
        machines = {vmi.metadata.name: vmi for vmi in await c.machines()}
        pods = {pod.metadata.name for pod in await c.pods()}
        infos = metrics.series("kubevirt_vmi_info")
        assert {info["name"] for info in infos} == machines.keys()
        assert {info["vmi_pod"] for info in infos} == pods
        assert {(info["phase"], info["node"], info["namespace"]) for info in infos} == {
            ("running", "node0", "default")
        }
        of_test = {"kubernetes_vmi_label_app": "test", "node": "node0"}
        for name in machines:
            assert metrics.value("kubevirt_vmi_memory_resident_bytes", name=name, **of_test) > 0
        await c.scale("test", 0)
        await c.until_ready("test", 0)
        metrics = await c.metrics()
        assert not [
            labels
            for name in metrics.names
            for labels in metrics.series(name)
            if "name" in labels and labels["name"] in machines
        ]


async def test_cpu_time_grows_as_the_guest_works():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        (machine,) = await c.machines()
        before = (await c.metrics()).value("kubevirt_vmi_cpu_usage_seconds_total")
        c.guest(machine).load = 0.5
        await asyncio.sleep(100)
        after = (await c.metrics()).value("kubevirt_vmi_cpu_usage_seconds_total")
        assert after - before == pytest.approx(50, abs=1)


async def test_the_stages_of_starts_and_the_phases_are_counted_once_each():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=3))
        await c.until_ready("test", 3)
        metrics = await c.metrics()
        for stage in ("scheduled", "prepared", "spawned", "started", "booted", "ready"):
            assert metrics.value("corral_vmi_start_stage_seconds_count", stage=stage) == 3, stage
        phases = "kubevirt_vmi_phase_transition_time_seconds_count"
        assert metrics.value(phases, phase="Running", last_phase="Scheduled") == 3
        created = "kubevirt_vmi_phase_transition_time_from_creation_seconds_count"
        assert metrics.value(created, phase="Running") == 3
        await c.scale("test", 0)
        await c.until_ready("test", 0)
        metrics = await c.metrics()
        deleted = "kubevirt_vmi_phase_transition_time_from_deletion_seconds_count"
        assert sum(metrics.value(deleted, **one) for one in metrics.series(deleted)) == 3


async def test_vmis_running_at_the_start_of_the_controllers_count_as_no_start():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        await c.crash_loops()
        c.kill_agent("node0")
        c.start_node("node0")
        c.start_loops()
        await asyncio.sleep(60)
        metrics = await c.metrics()
        assert len(metrics.series("kubevirt_vmi_info")) == 2
        assert not metrics.series("corral_vmi_start_stage_seconds_count")


async def test_controllers_have_metrics_of_their_queues_and_syncs():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=3))
        await c.until_ready("test", 3)
        await asyncio.sleep(10)
        metrics = await c.metrics()
        assert metrics.value("workqueue_adds_total", name="vmi") >= 3
        assert metrics.value("workqueue_depth", name="vmi") == 0
        waited = metrics.value("workqueue_queue_duration_seconds_count", name="vmi")
        assert waited == metrics.value("workqueue_adds_total", name="vmi")
        results = metrics.series("controller_runtime_reconcile_total")
        reconciles = sum(
            metrics.value("controller_runtime_reconcile_total", **labels)
            for labels in results
            if labels["controller"] == "vmi"
        )
        assert reconciles == waited
        assert metrics.value("controller_runtime_active_workers", controller="vmi") == 0


async def test_a_start_and_its_end_are_no_work_for_evacuations_and_the_collector_of_lost_pods():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=3))
        await c.until_ready("test", 3)
        await c.scale("test", 0)
        await c.until_ready("test", 0)
        metrics = await c.metrics()
        assert metrics.value("workqueue_adds_total", name="evacuation") == 0
        assert metrics.value("workqueue_adds_total", name="podgc") == 0


async def test_metrics_follow_a_migration():
    async with cluster(nodes=2) as c:
        [machine] = await started(c)
        named = {"name": machine.metadata.name, "namespace": "default"}
        slow(c, 30)
        await migrate(c, machine)
        await in_phase(c, "Running")
        metrics = await c.metrics()
        assert metrics.value("kubevirt_vmi_migrations_in_running_phase") == 1
        assert metrics.value("kubevirt_vmi_migration_data_remaining_bytes", **named) > 0
        assert metrics.value("kubevirt_vmi_migration_start_time_seconds", migration_name="move")
        await in_phase(c, "Succeeded")
        metrics = await c.metrics()
        assert metrics.value("kubevirt_vmi_migrations_in_running_phase") == 0
        assert metrics.series("kubevirt_vmi_migration_data_remaining_bytes") == []
        of_move = {"vmi": machine.metadata.name, "vmim": "move", "namespace": "default"}
        assert metrics.series("kubevirt_vmi_migration_succeeded") == [of_move]
        [ended] = metrics.series("kubevirt_vmi_migration_end_time_seconds")
        assert (ended["status"], ended["migration_name"]) == ("succeeded", "move")
        [downtime] = metrics.series("kubevirt_vmi_migration_last_downtime_seconds")
        assert downtime["name"] == machine.metadata.name
        passed = "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds_count"
        assert {each["phase"] for each in metrics.series(passed)} >= {"Pending", "Running"}
        assert metrics.value(passed, phase="Running") == 1


LISTED = Path(__file__).with_name("kubevirt_metrics.txt")
"""The metrics of machines in KubeVirt's docs/observability/metrics.md, and their types."""


async def test_names_and_types_of_metrics_are_kubevirts():
    known = dict(line.split() for line in LISTED.read_text().splitlines())
    async with cluster() as c:
        families = (await c.metrics()).families.values()
    types = {
        f"{each.name}_total" if each.type == "counter" else each.name: each.type
        for each in families
        if each.name.startswith("kubevirt_")
    }
    assert len(types) > 30
    assert types.keys() <= known.keys()
    # A counter's name must end in _total today, which those of KubeVirt's transitions do not.
    older = {name for name in types if name.endswith("_status_last_transition_timestamp_seconds")}
    assert {known[name] for name in older} == {"counter"}
    assert {types[name] for name in older} == {"gauge"}
    assert all(types[name] == known[name] for name in types.keys() - older)
