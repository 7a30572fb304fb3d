"""Metrics of machines where one of them does not answer."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.exposition import Scrape

from corral.api.kinds.vmi.status import MemoryStatus
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import Counters, MigrationCounters
from corral.node.hypervisor import GuestError, Usage
from corral.node.metrics.vmi_metrics import QUERY_SECONDS, VmiMetrics

SPEC = {"domain": {"devices": {}}}


class Guest:
    """A guest that has used a second, and answers queries or does not."""

    pid = None

    def __init__(self, *, answers: bool = True, ended: bool = False, migration=None):
        self._answers = answers
        self._migration = migration
        self._ended = ended

    def usage(self):
        return None if self._ended else Usage(10**9, 1 << 20)

    async def counters(self, vmi):
        if not self._answers:
            await asyncio.Event().wait()
        return Counters(user_nanos=1)

    async def migration_counters(self):
        return self._migration


class Gone:
    @property
    def guest(self):
        raise GuestError("the machine does not run")

    record = SimpleNamespace(uid="gone")


def machine(name: str, **guest):
    return SimpleNamespace(record=SimpleNamespace(uid=name), guest=Guest(**guest))


def instance(uid: str) -> VirtualMachineInstance:
    labels = {"example.com/a-b": "x"}
    metadata = {"name": uid, "namespace": "default", "uid": uid, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": SPEC}, VirtualMachineInstance)


async def named(*machines) -> dict[str, set[str]]:
    """The names of the machines in each family."""
    families = await VmiMetrics("node", lambda: machines, instance).collect()
    return {
        family.name: {one.labels["name"] for one in family.samples if "name" in one.labels}
        for family in families
    }


async def test_the_memory_of_a_guest_is_that_which_it_has_now():
    grown = instance("grown")
    grown.status.memory = MemoryStatus(guest_at_boot="1Gi", guest_current="2Gi")
    families = await VmiMetrics("node", lambda: [machine("grown")], lambda _: grown).collect()
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found["kubevirt_vmi_memory_domain_bytes"] == 2 << 30


@pytest.mark.looptime
async def test_a_hanging_machine_has_the_metrics_of_the_kernel(looptime):
    names = await named(machine("well"), *(machine(f"stuck{n}", answers=False) for n in range(3)))
    assert looptime == QUERY_SECONDS
    assert names["kubevirt_vmi_cpu_usage_seconds"] == {"well", "stuck0", "stuck1", "stuck2"}
    assert names["kubevirt_vmi_cpu_user_usage_seconds"] == {"well"}


async def test_a_machine_has_metrics_of_its_migration_while_it_migrates():
    counters = MigrationCounters(
        total=100, processed=60, remaining=40, dirty_rate=8.0, transfer_rate=9.0
    )
    machines = [machine("moving", migration=counters), machine("well")]
    families = await VmiMetrics("node", lambda: machines, instance).collect()
    values = {
        family.name.removeprefix("kubevirt_vmi_migration_"): family.samples[0].value
        for family in families
        if family.name.startswith("kubevirt_vmi_migration_")
        and family.samples
        and family.samples[0].labels.get("name") == "moving"
    }
    assert values == {
        "data_bytes": 100,
        "data_processed_bytes": 60,
        "data_remaining_bytes": 40,
        "dirty_memory_rate_bytes": 8,
        "memory_transfer_rate_bytes": 9,
    }
    names = await named(*machines)
    assert names["kubevirt_vmi_migration_data_processed_bytes"] == {"moving"}


async def test_a_machine_without_a_guest_is_left_out():
    names = await named(Gone(), machine("ended", ended=True), machine("well"))
    assert names["kubevirt_vmi_memory_resident_bytes"] == {"well"}


def test_a_node_exposes_metrics_of_its_own_machines():
    app = Starlette(routes=VmiMetrics("node", lambda: [machine("well")], instance).routes())
    with TestClient(app) as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    scrape = Scrape(answer.text)
    assert scrape.value("kubevirt_vmi_memory_resident_bytes", name="well") == 1 << 20
    assert "process_cpu_seconds_total" in scrape.names


async def test_labels_of_a_vmi_are_sanitized_for_prometheus():
    families = await VmiMetrics("node", lambda: [machine("well")], instance).collect()
    (sample,) = next(iter(families)).samples
    assert sample.labels == {
        "kubernetes_vmi_label_example_com_a_b": "x",
        "node": "node",
        "namespace": "default",
        "name": "well",
    }


@pytest.mark.looptime
async def test_the_start_of_a_fork_is_timed_until_it_has_an_identity_of_its_own():
    metrics = VmiMetrics("node", list, instance)
    for uid, steps in {
        "fork": ("defined", "forked disks", "loaded", "identity renewed"),
        "restored": ("defined", "loaded", "booted"),
    }.items():
        for step in steps:
            await asyncio.sleep(0.2)
            metrics.step(uid, step)
    (forks,) = [one for one in await metrics.collect() if one.name == "corral_fork_seconds"]
    sums = {one.labels["stage"]: one.value for one in forks.samples if one.name.endswith("_sum")}
    assert sums == pytest.approx({"loaded": 0.2, "renewed": 0.2})
