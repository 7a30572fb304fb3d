"""Counters of QEMU and the kernel for a real guest."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.exposition import Scrape
from tests.real_machine import definition, hypervisor, new_directory, seen

from corral.metrics import Registry
from corral.node.hypervisor import Change
from corral.node.metrics.vmi_metrics import VmiMetrics

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


async def test_a_booted_guest_has_read_its_disk_and_used_cpu(tmp_path, demo_disk):
    async with hypervisor(tmp_path) as qemu:
        defined = definition(new_directory(tmp_path), demo_disk)
        guest = await qemu.start(defined)
        await guest.resume()
        changes = guest.changes()
        await seen(changes, Change.AGENT_CONNECTED)
        await guest.pause()  # nothing is used between one look and the next
        await seen(changes, Change.PAUSED)
        machine = SimpleNamespace(record=SimpleNamespace(uid=defined.directory.name), guest=guest)
        vmi_metrics = VmiMetrics("here", lambda: [machine], lambda _: defined.vmi)

        async def scrape() -> Scrape:
            body, _ = await Registry(node=vmi_metrics.collect).text()
            return Scrape(body.decode())

        counters = await scrape()
        assert (
            counters.value("kubevirt_vmi_storage_read_traffic_bytes_total", drive="root") > 1 << 20
        )
        assert counters.value("kubevirt_vmi_storage_iops_read_total", drive="root") > 10
        used = counters.value("kubevirt_vmi_cpu_usage_seconds_total", name="vm")
        ran = counters.value("kubevirt_vmi_vcpu_seconds_total", id="0", state="running")
        assert 0 < ran < used
        split = [
            counters.value(f"kubevirt_vmi_cpu_{mode}_usage_seconds_total")
            for mode in ("user", "system")
        ]
        assert sum(split) == pytest.approx(used, abs=0.1)  # told in ticks
        held = counters.value("kubevirt_vmi_memory_resident_bytes")
        assert held > 16 << 20
        assert counters.value("kubevirt_vmi_memory_domain_bytes") == 64_000_000
        assert not counters.series(
            "kubevirt_vmi_network_receive_bytes_total"
        )  # nobody counts it here
        first = (await scrape()).value("kubevirt_vmi_vcpu_seconds_total")
        await asyncio.sleep(1)
        assert (await scrape()).value("kubevirt_vmi_vcpu_seconds_total") == first
        await guest.release()
