"""What is read of this host."""

import os

from corral.node.pressure import readings


def test_observations_of_this_host(tmp_path):
    seen = readings.observe(tmp_path, tmp_path)
    assert {"memory.available", "pid.available", "nodefs.available", "imagefs.available"} <= {*seen}
    for each in seen.values():
        assert 0 < each.available <= each.capacity
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0.8 * pages < seen["memory.available"].capacity <= pages


def test_available_memory_is_the_kernels_estimate():
    meminfo = "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\n"
    assert readings._memory(meminfo) == readings.Observation(600 * 1024, 1000 * 1024)


def test_threads_use_process_ids():
    seen = readings._pids("0.1 0.2 0.3 2/345 6789")
    assert seen.capacity - seen.available == 345
