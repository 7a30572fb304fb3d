"""Usage and metrics of a real guest, compared with the kernel's counters of its process."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from lightkube.models.core_v1 import Container, Pod, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from tests.exposition import Scrape
from tests.real_machine import definition, hypervisor, new_directory, seen

from corral.api.object import Key
from corral.metrics import Registry
from corral.node.hypervisor import Change
from corral.node.metrics.sampling.sampler import RunningPod, Sampler
from corral.node.metrics.vmi_metrics import VmiMetrics
from corral.node.state.facts import Facts, State

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
KEY = Key("default", "pod")


def seconds_of(pid):
    """Processor time of a process, all its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def works(pid, seconds):
    """Until a process has used its processors for so long."""
    enough = seconds_of(pid) + seconds
    while seconds_of(pid) < enough:
        await asyncio.sleep(0.05)


def watch(guest):
    """A sampler of one pod, in which this guest runs."""
    spec = PodSpec(containers=[Container(name="compute")])
    pod = Pod(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec)
    machine = SimpleNamespace(guest=guest, facts=Facts(state=State.RUNNING))
    sampler = Sampler()
    sampler.add("here", lambda: [RunningPod(pod, machine)])
    return sampler


async def test_usage_of_busy_and_paused_guests_is_that_of_the_kernel(tmp_path, demo_disk):
    async with hypervisor(tmp_path) as qemu:
        defined = definition(new_directory(tmp_path), demo_disk)
        guest = await qemu.start(defined)
        await guest.resume()
        changes = guest.changes()
        await seen(changes, Change.AGENT_CONNECTED)
        sampler = watch(guest)

        before = seconds_of(guest.pid)
        sampler.sample()
        busy = "dd if=/dev/zero of=/dev/null >/dev/null 2>&1 </dev/null &"
        await guest.agent.run(["/bin/sh", "-c", busy])
        begun = seconds_of(guest.pid)
        await works(guest.pid, 2)
        least, held = seconds_of(guest.pid) - begun, resident(guest.pid)
        sampler.sample()
        most = seconds_of(guest.pid) - before
        window = sampler.node("here").pods[KEY].window
        assert least - 2 / TICKS <= window.cpu_nanos / 1e9 <= most + 2 / TICKS
        assert abs(window.after.usage.memory_bytes - held) < 8 * MIB
        assert sampler.pod_metrics(KEY).containers[0].usage["cpu"] != "0"

        await guest.pause()
        await seen(changes, Change.PAUSED)
        sampler.sample()
        await asyncio.sleep(3)
        sampler.sample()
        assert sampler.node("here").pods[KEY].window.nanocores < 0.05e9
        await metrics_are_those_of_qemu_and_the_kernel(guest, defined)

        await guest.destroy()
        await seen(changes, Change.GONE)
        sampler.sample()
        assert sampler.pod_metrics(KEY) is None
        await guest.release()


async def metrics_are_those_of_qemu_and_the_kernel(guest, defined):
    """Of a guest that is paused: nothing is used between one scrape and the next."""
    machine = SimpleNamespace(record=SimpleNamespace(uid=defined.directory.name), guest=guest)
    vmi_metrics = VmiMetrics("here", lambda: [machine], lambda _: defined.vmi)

    async def scrape() -> Scrape:
        body, _ = await Registry(node=vmi_metrics.collect).text()
        return Scrape(body.decode())

    counters = await scrape()
    assert counters.value("kubevirt_vmi_storage_read_traffic_bytes_total", drive="root") > 1 << 20
    assert counters.value("kubevirt_vmi_storage_iops_read_total", drive="root") > 10
    used = counters.value("kubevirt_vmi_cpu_usage_seconds_total", name="vm")
    ran = counters.value("kubevirt_vmi_vcpu_seconds_total", id="0", state="running")
    assert 0 < ran < used
    split = [
        counters.value(f"kubevirt_vmi_cpu_{mode}_usage_seconds_total")
        for mode in ("user", "system")
    ]
    assert sum(split) == pytest.approx(used, abs=0.1)  # counted in ticks
    assert counters.value("kubevirt_vmi_memory_resident_bytes") > 16 << 20
    assert counters.value("kubevirt_vmi_memory_domain_bytes") == 64_000_000
    # The kernel counts packets on links, of which this guest has none.
    assert not counters.series("kubevirt_vmi_network_receive_bytes_total")
    first = (await scrape()).value("kubevirt_vmi_vcpu_seconds_total")
    await asyncio.sleep(1)
    assert (await scrape()).value("kubevirt_vmi_vcpu_seconds_total") == first
