"""What the host takes, as the kernel tells it."""

import os
import time

from corral.node.metrics.sampling.host import _cpu_nanos, _working_set, host_usage

STAT = """\
cpu  400 0 0 99999 0 0 0 0 0 0
cpu0 100 20 30 5000 600 7 8 9 50 3
cpu1 1000 0 0 5000 0 0 0 0 0 0
cpu12 4 0 0 5000 0 0 0 0 0 0
intr 12345 0 0
ctxt 99
"""
MEMORY = """\
MemTotal:        8000 kB
MemFree:         1000 kB
MemAvailable:    4000 kB
Inactive(anon):    77 kB
Inactive(file):  2500 kB
HugePages_Total:       0
"""
TICK = 10**9 // os.sysconf("SC_CLK_TCK")


def test_a_processor_is_busy_with_all_but_idling_and_waiting_for_disks():
    assert _cpu_nanos(STAT, {0}) == (100 + 20 + 30 + 7 + 8 + 9) * TICK


def test_processors_that_we_may_not_use_are_not_counted():
    assert _cpu_nanos(STAT, {0, 12}) == (174 + 4) * TICK


def test_files_that_could_be_dropped_are_no_part_of_the_working_set():
    assert _working_set(MEMORY) == (8000 - 1000 - 2500) * 1024
    assert _working_set("MemTotal: 10 kB\nMemFree: 4 kB\n") == 6 * 1024


def test_this_host_takes_something_and_more_as_time_goes_on():
    before = host_usage()
    until = time.process_time() + 4 * TICK / 1e9
    while time.process_time() < until:
        pass
    after = host_usage()
    assert after.cpu_nanos >= before.cpu_nanos + TICK
    assert 0 < after.memory_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
