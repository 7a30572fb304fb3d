"""What nodes that share a host take of it."""

from hypothesis import given, strategies as st

from corral.node.hypervisor import Usage
from corral.node.metrics.sampling.shares import shares

AMOUNTS = st.builds(Usage, st.integers(0, 10**12), st.integers(0, 10**12))


def test_a_single_node_takes_what_its_host_does():
    assert shares(Usage(100, 1000), {"here": Usage(30, 400)}) == {"here": Usage(100, 1000)}


def test_each_node_takes_what_its_machines_do_and_an_equal_part_of_the_rest():
    taken = shares(Usage(100, 1000), {"a": Usage(60, 100), "b": Usage(0, 300)})
    assert taken == {"a": Usage(60 + 20, 100 + 300), "b": Usage(20, 300 + 300)}


def test_machines_that_only_pretend_to_take_something_do_not_make_the_rest_negative():
    taken = shares(Usage(10, 10), {"a": Usage(500, 20), "b": Usage(0, 0)})
    assert taken == {"a": Usage(500, 20), "b": Usage(0, 0)}


@given(host=AMOUNTS, own=st.dictionaries(st.sampled_from("abcde"), AMOUNTS, min_size=1))
def test_nodes_together_take_what_the_host_does_but_for_roundings(host, own):
    taken = shares(host, own)
    for index in (0, 1):
        machines = sum(one[index] for one in own.values())
        whole = max(host[index], machines)
        assert whole - len(own) < sum(one[index] for one in taken.values()) <= whole
        assert all(taken[node][index] >= own[node][index] for node in own)
