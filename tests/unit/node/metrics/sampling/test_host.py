"""Usage of the host, as the kernel reports it."""

import os
import time

from hypothesis import given, strategies as st

from corral.node.hypervisor import Usage
from corral.node.metrics.sampling.host import _cpu_nanos, _working_set, host_usage, shares

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


def test_cpu_time_excludes_idle_and_iowait():
    assert _cpu_nanos(STAT, {0}) == (100 + 20 + 30 + 7 + 8 + 9) * TICK


def test_cpus_outside_of_the_affinity_mask_do_not_count():
    assert _cpu_nanos(STAT, {0, 12}) == (174 + 4) * TICK


def test_the_working_set_excludes_inactive_page_cache():
    assert _working_set(MEMORY) == (8000 - 1000 - 2500) * 1024
    assert _working_set("MemTotal: 10 kB\nMemFree: 4 kB\n") == 6 * 1024


def test_usage_of_this_host_increases():
    before = host_usage()
    until = time.process_time() + 4 * TICK / 1e9
    while time.process_time() < until:
        pass
    after = host_usage()
    assert after.cpu_nanos >= before.cpu_nanos + TICK
    assert 0 < after.memory_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


AMOUNTS = st.builds(Usage, st.integers(0, 10**12), st.integers(0, 10**12))


def test_a_single_node_has_the_usage_of_its_host():
    assert shares(Usage(100, 1000), {"here": Usage(30, 400)}) == {"here": Usage(100, 1000)}


def test_nodes_have_the_usage_of_their_machines_and_an_equal_part_of_the_rest():
    taken = shares(Usage(100, 1000), {"a": Usage(60, 100), "b": Usage(0, 300)})
    assert taken == {"a": Usage(60 + 20, 100 + 300), "b": Usage(20, 300 + 300)}


def test_hollow_usage_does_not_make_the_rest_negative():
    taken = shares(Usage(10, 10), {"a": Usage(500, 20), "b": Usage(0, 0)})
    assert taken == {"a": Usage(500, 20), "b": Usage(0, 0)}


@given(host=AMOUNTS, own=st.dictionaries(st.sampled_from("abcde"), AMOUNTS, min_size=1))
def test_nodes_together_have_the_usage_of_the_host(host, own):
    taken = shares(host, own)
    for index in (0, 1):
        machines = sum(one[index] for one in own.values())
        whole = max(host[index], machines)
        assert whole - len(own) < sum(one[index] for one in taken.values()) <= whole
        assert all(taken[node][index] >= own[node][index] for node in own)
