"""VirtualMachines in a whole cluster: VMIs come, go and come again as requested."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import ConfigMap, Pod
from tests.sim.cluster import Cluster, Faults, Faulty, cluster

from corral.aio import Background
from corral.api.errors import ApiError, Conflict, NotFound, Unavailable
from corral.api.kinds.kubevirt.virtualmachine import FINALIZER, VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Document, Key
from corral.api.request import Request, Response
from corral.api.time import parse_rfc3339
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime

KEY = Key("default", "testvm")


def vm(strategy: str | bool = "Always", **template: Any) -> Document:
    """A VirtualMachine with one disk out of an image."""
    how = {"running": strategy} if isinstance(strategy, bool) else {"runStrategy": strategy}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "resources": {"requests": {"memory": "64M"}},
            "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        },
        "volumes": [{"name": "root", "containerDisk": {"image": "cirros:1"}}],
        **template,
    }
    labels = {"kubevirt.io/size": "small"}
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {**how, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


NOWHERE = {"nodeSelector": {"no": "such"}}
"""A template whose machine finds no node: it never runs."""


async def get(c: Cluster) -> VirtualMachine:
    return await c.client.get(VirtualMachine, KEY.name, KEY.namespace)


async def machine(c: Cluster) -> Machine | None:
    try:
        return await c.client.get(Machine, KEY.name, KEY.namespace)
    except NotFound:
        return None


async def until_status(c: Cluster, word: str, seconds: float = 120.0) -> VirtualMachine:
    """Wait until the VirtualMachine says this of itself."""
    found = await get(c)

    async def says() -> bool:
        nonlocal found
        found = await get(c)
        return found.status.printable_status == word

    try:
        await c.until(says, seconds)
    except TimeoutError:
        raise AssertionError(f"{found.status} instead of {word}") from None
    return found


async def runs(c: Cluster, *, other_than: str = "", seconds: float = 120.0) -> str:
    """Wait until a machine runs, another one than that; answers its uid."""

    async def is_there() -> bool:
        found = await machine(c)
        return (
            found is not None
            and found.metadata.uid != other_than
            and found.status.phase == "Running"
        )

    await c.until(is_there, seconds)
    await until_status(c, "Running")
    found = await machine(c)
    assert found is not None
    return found.metadata.uid


async def request_action(c: Cluster, what: str, **options: Any) -> None:
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/testvm/{what}"
    await c.client.request("PUT", path, document=options)


async def end(c: Cluster, change: Change) -> None:
    found = await machine(c)
    assert found is not None
    c.end(found, change)


async def gone(c: Cluster) -> None:
    async def is_gone() -> bool:
        return await machine(c) is None

    await c.until(is_gone)


async def happened(c: Cluster) -> list[tuple[str, str]]:
    """Return the reasons and messages of the VirtualMachine's own events."""
    return [
        (event.reason or "", event.message or "")
        for event in await c.events(KEY.name)
        if event.involvedObject.kind == "VirtualMachine"
    ]


async def fail(c: Cluster) -> str:
    """Let a machine that finds no node end: its pod is taken away.  Answers its uid."""
    await until_status(c, "ErrorUnschedulable", 400)
    found = await machine(c)
    assert found is not None
    (pod,) = [each for each in await c.pods("default") if found.metadata.name in each.metadata.name]
    await c.client.delete(Pod, Key("default", pod.metadata.name), grace_seconds=0)
    await until_status(c, "CrashLoopBackOff")
    return found.metadata.uid


# ------------------------------------------------------------------------ making


async def test_a_vmi_is_created_and_reported():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        await runs(c)

        async def is_ready() -> bool:
            return (await get(c)).status.ready

        await c.until(is_ready)
        one, made = await get(c), await machine(c)
        assert one.metadata.finalizers == [FINALIZER]
        assert one.status.created
        assert one.status.run_strategy == "Always"
        assert one.status.observed_generation == one.status.desired_generation == 1
        assert made.metadata.labels["kubevirt.io/size"] == "small"
        assert FINALIZER in made.metadata.finalizers
        assert made.metadata.owner_references[0].uid == one.metadata.uid
        name = f"revision-start-vm-{one.metadata.uid}-1"
        assert made.status.virtual_machine_revision_name == name
        kept = await c.client.get(ControllerRevision, name, "default")
        assert kept.data["spec"]["runStrategy"] == "Always"
        assert await happened(c) == [
            (
                "SuccessfulCreate",
                "Started the virtual machine by creating the new virtual machine instance testvm",
            )
        ]


async def test_an_unchanged_vm_is_not_written():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        await runs(c)
        await asyncio.sleep(60)
        before = (await get(c)).metadata.resource_version
        await asyncio.sleep(3600)
        assert (await get(c)).metadata.resource_version == before


async def test_the_firmware_uuid_of_the_guest_stays():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        first = await runs(c)
        firmware = (await machine(c)).spec.domain.firmware
        await request_action(c, "restart")
        await runs(c, other_than=first)
        assert (await machine(c)).spec.domain.firmware == firmware


# ------------------------------------------------------------------ run strategies


@pytest.mark.parametrize("change", [Change.POWERED_OFF, Change.GONE])
async def test_run_strategy_always_recreates_the_vmi_at_once(change):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        uid = await runs(c)
        for _ in range(5):
            began = asyncio.get_running_loop().time()
            await end(c, change)
            uid = await runs(c, other_than=uid)
            assert asyncio.get_running_loop().time() - began < 10
        assert (await get(c)).status.start_failure is None


@pytest.mark.parametrize(
    ("change", "phase"), [(Change.POWERED_OFF, "Succeeded"), (Change.GONE, "Failed")]
)
async def test_a_finished_vmi_stays_readable_before_the_next_one_is_created(change, phase):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        uid = await runs(c)
        for _ in range(5):
            await end(c, change)
            await asyncio.sleep(1.0)
            found = await machine(c)
            assert (found.metadata.uid, found.status.phase) == (uid, phase)
            uid = await runs(c, other_than=uid, seconds=2)


async def test_run_strategy_rerun_on_failure_recreates_the_vmi_after_a_crash_only():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm("RerunOnFailure"))
        first = await runs(c)
        await end(c, Change.GONE)
        await runs(c, other_than=first)
        await end(c, Change.POWERED_OFF)
        await gone(c)
        await until_status(c, "Stopped")
        await asyncio.sleep(3600)
        assert await machine(c) is None
        await request_action(c, "start")
        await runs(c)


async def test_a_halted_vm_switched_to_rerun_on_failure_starts():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        await runs(c)
        await c.client.patch(VirtualMachine, KEY, {"spec": {"runStrategy": "Halted"}})
        await gone(c)
        await until_status(c, "Stopped")
        await c.client.patch(VirtualMachine, KEY, {"spec": {"runStrategy": "RerunOnFailure"}})
        await runs(c)


@pytest.mark.parametrize("change", [Change.POWERED_OFF, Change.GONE])
async def test_run_strategy_once_leaves_the_finished_vmi(change):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm("Once"))
        uid = await runs(c)
        await end(c, change)
        await until_status(c, "Stopped")
        await asyncio.sleep(3600)
        assert (await machine(c)).metadata.uid == uid


async def test_run_strategy_manual_follows_requests_only():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm("Manual"))
        await until_status(c, "Stopped")
        await asyncio.sleep(600)
        assert await machine(c) is None
        await request_action(c, "start")
        first = await runs(c)
        await end(c, Change.POWERED_OFF)
        await until_status(c, "Stopped")
        await asyncio.sleep(600)
        assert (await machine(c)).metadata.uid == first
        await request_action(c, "start")
        await runs(c, other_than=first)
        await request_action(c, "stop")
        await gone(c)
        await until_status(c, "Stopped")
        assert (await get(c)).status.state_change_requests == []


@pytest.mark.parametrize("strategy", ["Halted", False])
async def test_a_halted_vm_starts_and_stops_on_request(strategy):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(strategy))
        await until_status(c, "Stopped")
        await request_action(c, "start")
        await runs(c)
        assert (await get(c)).spec.strategy == "Always"
        await request_action(c, "stop")
        await gone(c)
        await until_status(c, "Stopped")
        spec = (await get(c)).spec
        assert (spec.running, spec.run_strategy) == (
            (None, "Halted") if strategy == "Halted" else (False, None)
        )


@pytest.mark.parametrize("strategy", ["Halted", False, "Manual"])
async def test_a_vm_can_start_paused(strategy):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(strategy))
        await until_status(c, "Stopped")
        await request_action(c, "start", paused=True)
        one = await until_status(c, "Paused")
        assert one.status.state_change_requests == []
        assert one.spec.template.spec.start_strategy is None
        assert one.spec.strategy == ("Manual" if strategy == "Manual" else "Always")


async def test_a_restart_creates_another_vmi_of_the_same_name():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        first = await runs(c)
        await request_action(c, "restart")
        second = await runs(c, other_than=first)
        stopped = "Stopped the virtual machine by deleting the virtual machine instance "
        recorded = await happened(c)
        assert ("SuccessfulDelete", stopped + KEY.name) in recorded
        assert [reason for reason, _ in recorded].count("SuccessfulDelete") == 1
        assert (await get(c)).status.state_change_requests == []
        await asyncio.sleep(600)
        assert (await machine(c)).metadata.uid == second


async def test_a_repeated_request_is_fulfilled_once():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm("Manual"))
        await until_status(c, "Stopped")
        await request_action(c, "start")
        with pytest.raises(ApiError):
            await request_action(c, "start")
        await runs(c)
        with pytest.raises(Conflict, match="VM is already running"):
            await request_action(c, "start")


# ------------------------------------------------------------------ start failures


async def test_vmis_that_fail_to_start_are_recreated_with_backoff():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(**NOWHERE))
        for count, (least, most) in enumerate([(10, 15), (40, 60), (90, 135), (160, 240)], 1):
            uid = await fail(c)
            ended = c.clock()
            failure = (await get(c)).status.start_failure
            assert failure.consecutive_fail_count == count
            assert failure.last_failed_vmi_uid == uid
            retry = parse_rfc3339(failure.retry_after_timestamp)
            waits = (retry - ended).total_seconds()
            assert least - 1 <= waits <= most + 1

            async def is_back(uid=uid) -> bool:
                found = await machine(c)
                return found is not None and found.metadata.uid != uid

            await c.until(is_back, 400)
            assert retry <= c.clock() <= retry + timedelta(seconds=2)


async def test_a_vmi_that_runs_resets_the_backoff():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(**NOWHERE))
        await fail(c)
        await c.client.patch(
            VirtualMachine, KEY, {"spec": {"template": {"spec": {"nodeSelector": None}}}}
        )
        await runs(c)
        assert (await get(c)).status.start_failure is None


async def test_a_manual_start_skips_the_backoff():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm("RerunOnFailure", **NOWHERE))
        await fail(c)
        await c.client.patch(VirtualMachine, KEY, {"spec": {"runStrategy": "Halted"}})
        await until_status(c, "Stopped")
        assert (await get(c)).status.start_failure is None
        before = c.clock()
        await request_action(c, "start")
        await until_status(c, "ErrorUnschedulable")
        assert (c.clock() - before).total_seconds() < 5


async def test_start_failures_survive_a_restart_of_the_manager():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(**NOWHERE))
        await fail(c)
        retry = parse_rfc3339((await get(c)).status.start_failure.retry_after_timestamp)
        await c.crash_loops()
        c.start_loops()
        await until_status(c, "ErrorUnschedulable")
        assert c.clock() >= retry


# ------------------------------------------------------------------ what cannot run


async def crash_loops(c: Cluster, count: int, seconds: float) -> VirtualMachine:
    """Wait until so many of its machines in a row have failed before they ran."""

    async def has_failed() -> bool:
        found = (await get(c)).status
        known = found.start_failure and found.start_failure.consecutive_fail_count
        return found.printable_status == "CrashLoopBackOff" and known == count

    await c.until(has_failed, seconds)
    return await get(c)


def failing() -> Document:
    """One whose machines fail at their start, as a launcher in KubeVirt's tests does."""
    document = vm()
    annotations = {"kubevirt.io/func-test-virt-launcher-fail-fast": ""}
    document["spec"]["template"]["metadata"]["annotations"] = annotations
    return document


async def test_a_vm_with_start_failures_backs_off_until_its_template_is_fixed():
    async with cluster() as c:
        await c.client.create(VirtualMachine, failing())
        await crash_loops(c, 1, 5)
        await crash_loops(c, 3, 80)
        annotations = {"kubevirt.io/func-test-virt-launcher-fail-fast": None}
        change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        await c.client.patch(VirtualMachine, KEY, change)
        await runs(c, seconds=140)
        assert (await get(c)).status.start_failure is None


async def test_a_vm_in_backoff_can_be_stopped():
    async with cluster() as c:
        await c.client.create(VirtualMachine, failing())
        await crash_loops(c, 2, 30)
        await request_action(c, "stop")
        one = await until_status(c, "Stopped", 5)
        assert one.status.start_failure is None
        await asyncio.sleep(600)
        assert await machine(c) is None
        assert (await get(c)).status.printable_status == "Stopped"


async def test_a_vm_that_fits_no_node_is_unschedulable():
    async with cluster() as c:
        huge = {"resources": {"requests": {"cpu": "1M", "memory": "1Ei"}}, "devices": {}}
        await c.client.create(VirtualMachine, vm(domain=huge, volumes=[]))
        await until_status(c, "ErrorUnschedulable", 5)
        pods = await c.pods("default")
        assert [pod.spec.containers[0].resources.requests["cpu"] for pod in pods] == ["1M"]
        await request_action(c, "stop")
        await until_status(c, "Stopped", 10)


# ----------------------------------------------------------- owning and letting go


async def test_an_orphaned_vmi_of_its_name_is_adopted():
    async with cluster() as c:
        document = vm()
        template = document["spec"]["template"]["spec"]
        lone = {"metadata": {"name": "testvm", "namespace": "default"}, "spec": template}
        made = await c.client.create(Machine, lone)
        one = await c.client.create(VirtualMachine, document)
        uid = await runs(c)
        assert uid == made.metadata.uid
        found = await machine(c)
        assert [owner.uid for owner in found.metadata.owner_references] == [one.metadata.uid]


async def test_a_vmi_of_its_name_with_another_owner_is_left_alone():
    async with cluster() as c:
        document = vm()
        template = document["spec"]["template"]["spec"]
        metadata = {"name": "testvm", "namespace": "default"}
        other = await c.client.create(ConfigMap, {"metadata": metadata})
        uid = other.metadata.uid
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "testvm", "uid": uid}
        lone = {"metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]}}
        made = await c.client.create(Machine, {**lone, "spec": template})
        await c.client.create(VirtualMachine, document)

        async def failed() -> bool:
            return any(each.type == "Failure" for each in (await get(c)).status.conditions)

        await c.until(failed)
        (failure,) = [e for e in (await get(c)).status.conditions if e.type == "Failure"]
        assert failure.reason == "FailedCreate"
        assert "already exists" in failure.message
        assert (await machine(c)).metadata.uid == made.metadata.uid
        await c.client.delete(Machine, KEY)
        await runs(c, other_than=made.metadata.uid)
        assert not await failed()


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
@pytest.mark.parametrize("strategy", ["Always", "Manual"])
async def test_deleting_a_vm_deletes_its_vmi(policy, strategy):
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm(strategy))
        if strategy == "Always":
            await runs(c)
        await c.client.delete(VirtualMachine, KEY, propagation=policy)

        async def is_gone() -> bool:
            left = (await c.client.list(VirtualMachine)).items + await c.machines()
            left += (await c.client.list(ControllerRevision)).items
            return not left and not await c.pods("default")

        await c.until(is_gone)


async def test_orphan_deletion_of_a_vm_leaves_its_vmi():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        uid = await runs(c)
        await c.client.delete(VirtualMachine, KEY, propagation="Orphan")

        async def is_free() -> bool:
            found = await machine(c)
            held = FINALIZER in found.metadata.finalizers
            return not held and not found.metadata.owner_references

        await c.until(is_free)
        await asyncio.sleep(600)
        assert (await machine(c)).metadata.uid == uid
        await c.client.create(VirtualMachine, vm())
        assert await runs(c) == uid


# ------------------------------------------------------------------------ changing


def required(one: VirtualMachine) -> str | None:
    found = [each for each in one.status.conditions if each.type == "RestartRequired"]
    return found[0].message if found else None


async def test_a_changed_template_requires_a_restart():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        first = await runs(c)
        spec = {"hostname": "other"}
        await c.client.patch(VirtualMachine, KEY, {"spec": {"template": {"spec": spec}}})

        async def is_required() -> bool:
            return required(await get(c)) is not None

        await c.until(is_required)
        one = await get(c)
        assert required(one) == "a non-live-updatable field was changed in the template spec"
        assert (one.status.observed_generation, one.status.desired_generation) == (1, 2)
        assert (await machine(c)).metadata.uid == first
        await request_action(c, "restart")
        await runs(c, other_than=first)
        one = await get(c)
        assert required(one) is None
        assert (one.status.observed_generation, one.status.desired_generation) == (2, 2)
        revisions = (await c.client.list(ControllerRevision)).items
        assert [each.revision for each in revisions] == [2]
        assert (await machine(c)).spec.hostname == "other"


async def test_a_reverted_change_requires_no_restart():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        await runs(c)
        for hostname, expected in (("other", True), (None, False)):
            spec = {"hostname": hostname}
            await c.client.patch(VirtualMachine, KEY, {"spec": {"template": {"spec": spec}}})

            async def is_so(expected=expected) -> bool:
                return (required(await get(c)) is not None) is expected

            await c.until(is_so)
        one = await get(c)
        assert (one.status.observed_generation, one.status.desired_generation) == (3, 3)


async def test_a_change_of_the_run_strategy_requires_no_restart():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        first = await runs(c)
        await c.client.patch(VirtualMachine, KEY, {"spec": {"runStrategy": "Manual"}})

        async def is_noticed() -> bool:
            return (await get(c)).status.observed_generation == 2

        await c.until(is_noticed)
        assert required(await get(c)) is None
        assert (await get(c)).status.run_strategy == "Manual"
        assert (await machine(c)).metadata.uid == first


# --------------------------------------------------------------------------- faults


class Cut(Faulty):
    """Refuses one write of the loops, loses its answer, or never answers."""

    number = 0
    way = ""
    seen = 0
    struck: asyncio.Event

    async def send(self, request: Request) -> Response:
        if request.method == "GET" or not _is_ours(request):
            return await super().send(request)
        Cut.seen += 1
        if Cut.seen != Cut.number:
            return await super().send(request)
        if Cut.way == "refused":
            raise Unavailable("a fault of the test: refused")
        answered = await super().send(request)
        if Cut.way == "lost":
            raise Unavailable("a fault of the test: answer lost")
        Cut.struck.set()
        await asyncio.Event().wait()
        return answered


def _is_ours(request: Request) -> bool:
    kinds = ("/virtualmachines", "/virtualmachineinstances", "/controllerrevisions")
    return any(kind in request.path for kind in kinds)


@asynccontextmanager
async def cut(number: int, way: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A cluster whose loops are cut once, at this write of theirs."""
    monkeypatch.setattr("tests.sim.cluster.Faulty", Cut)
    Cut.number, Cut.way, Cut.seen, Cut.struck = number, way, 0, asyncio.Event()
    async with cluster() as c, Background() as tasks:

        async def begin_anew() -> None:
            await Cut.struck.wait()
            await c.crash_loops()
            c.start_loops()

        _ = tasks.start(begin_anew(), name="begin anew")
        yield c


WAYS = ["refused", "lost", "killed"]
MADE, RESTARTED, CRASHED_TWICE, DELETED = 11, 26, 33, 18
"""Writes until a machine runs, and until the whole of what follows is done."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(1, RESTARTED + 1))
async def test_a_restart_happens_once_after_a_crash_at_any_write(number, way, monkeypatch):
    async with cut(number, way, monkeypatch) as c:
        await c.client.create(VirtualMachine, vm())
        first = await runs(c)
        await request_action(c, "restart")
        second = await runs(c, other_than=first)
        await asyncio.sleep(60)
        one = await until_status(c, "Running")
        assert (await machine(c)).metadata.uid == second
        assert one.status.state_change_requests == []
        assert one.status.start_failure is None
        assert not [each for each in one.status.conditions if each.type == "Failure"]
        assert len(await c.pods("default")) == 1


@pytest.mark.parametrize("number", range(MADE, CRASHED_TWICE + 1))
async def test_a_crash_of_the_guest_is_followed_by_a_start_after_a_kill_of_the_manager(
    number, monkeypatch
):
    async with cut(number, "killed", monkeypatch) as c:
        await c.client.create(VirtualMachine, vm("RerunOnFailure"))
        first = await runs(c)
        await end(c, Change.GONE)
        second = await runs(c, other_than=first)
        await end(c, Change.POWERED_OFF)
        await gone(c)
        await asyncio.sleep(60)
        one = await until_status(c, "Stopped")
        assert one.status.state_change_requests == []
        assert await machine(c) is None
        assert second != first


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(MADE, DELETED + 1))
async def test_a_deletion_is_complete_after_a_crash_at_any_write(number, way, monkeypatch):
    async with cut(number, way, monkeypatch) as c:
        await c.client.create(VirtualMachine, vm())
        await runs(c)
        await c.client.delete(VirtualMachine, KEY)

        async def is_gone() -> bool:
            left = (await c.client.list(VirtualMachine)).items + await c.machines()
            left += (await c.client.list(ControllerRevision)).items
            return not left and not await c.pods("default")

        await c.until(is_gone)


@pytest.mark.parametrize("seed", range(12))
async def test_each_vm_runs_once_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.02, double=0.05)
    async with cluster(faults=faults) as c:
        for number in range(10):
            document = vm("Always" if number % 2 else "RerunOnFailure")
            document["metadata"]["name"] = f"vm-{number}"
            await c.client.create(VirtualMachine, document)
        await asyncio.sleep(5)
        await c.crash_loops()
        c.start_loops()

        async def all_run() -> bool:
            found = (await c.client.list(VirtualMachine)).items
            return all(each.status.printable_status == "Running" for each in found)

        await c.until(all_run, 600)
        assert len(await c.machines()) == len(await c.pods("default")) == 10


async def test_changed_labels_of_the_template_require_no_restart():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        await until_status(c, "Running")
        labels = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
        await c.client.patch(VirtualMachine, KEY, labels)

        async def is_noted():
            status = (await get(c)).status
            return (status.observed_generation, status.desired_generation) == (2, 2)

        await c.until(is_noted)
        assert not [
            each for each in (await get(c)).status.conditions if each.type == "RestartRequired"
        ]
