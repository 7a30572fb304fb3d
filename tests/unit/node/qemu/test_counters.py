"""What QEMU's monitor answers about a guest, as counters."""

import os

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import Disk, Flow
from corral.node.qemu.counters import count
from corral.node.qemu.monitor import MonitorError

VMI = msgspec.convert(
    {
        "metadata": {"name": "vm"},
        "spec": {"domain": {"devices": {"disks": [{"name": "root"}, {"name": "seed"}]}}},
    },
    VirtualMachineInstance,
)


def block(node: str, **counts: int) -> dict:
    nothing = {
        f"{kind}_{what}": 0
        for kind in ("rd", "wr", "flush")
        for what in ("operations", "bytes", "total_time_ns")
    }
    return {"device": "", "node-name": node, "qdev": "/machine", "stats": nothing | counts}


class Monitor:
    """Answers as QEMU 7.2 does; a command without an answer is refused."""

    def __init__(self, **answers):
        self.answers = {"query_blockstats": [], "query_cpus_fast": [], **answers}

    async def execute(self, command):
        try:
            return self.answers[command.replace("-", "_")]
        except KeyError:
            raise MonitorError("No balloon device has been activated") from None


async def test_counters_of_disks_are_by_volume():
    root = block("disk0", rd_operations=3, rd_bytes=4096, rd_total_time_ns=5, flush_operations=2)
    cdrom = {"device": "ide2-cd0", "stats": {}, "qdev": "/machine/unattached/device[19]"}
    monitor = Monitor(query_blockstats=[cdrom, root, block("disk1", wr_operations=7)])
    counters = await count(monitor, os.getpid(), VMI)
    assert counters.disks == {
        "root": Disk(reads=Flow(3, 4096, 5), writes=Flow(), flushes=Flow(2)),
        "seed": Disk(reads=Flow(), writes=Flow(7), flushes=Flow()),
    }


async def test_cpu_time_is_that_of_the_vcpu_threads():
    threads = [{"cpu-index": 0, "thread-id": os.getpid()}, {"cpu-index": 1, "thread-id": 2**22 + 1}]
    counters = await count(Monitor(query_cpus_fast=threads), os.getpid(), VMI)
    assert counters.processors.keys() == {0}
    assert counters.processors[0].ran_nanos > 0
    assert counters.user_nanos > 0


@pytest.mark.parametrize(
    ("answers", "left"), [({"query_balloon": {"actual": 1 << 26}}, 1 << 26), ({}, None)]
)
async def test_counters_without_a_balloon(answers, left):
    assert (await count(Monitor(**answers), os.getpid(), VMI)).balloon_bytes == left


@pytest.mark.parametrize(
    "answers",
    [
        {"query_blockstats": {}},
        {"query_blockstats": [{"node-name": "disk0"}]},
        {"query_blockstats": [{"node-name": "disk0", "stats": {"rd_operations": 1}}]},
        {"query_blockstats": [block("disk0", wr_bytes="many")]},
        {"query_cpus_fast": [{"cpu-index": "0", "thread-id": 1}]},
        {"query_cpus_fast": [{"cpu-index": 0}]},
    ],
)
async def test_responses_without_counters_are_errors(answers):
    with pytest.raises(MonitorError, match="unexpected answer"):
        await count(Monitor(**answers), os.getpid(), VMI)


async def test_a_balloon_of_size_zero_counts_as_none():
    monitor = Monitor(query_balloon={"actual": None})
    assert (await count(monitor, os.getpid(), VMI)).balloon_bytes is None
