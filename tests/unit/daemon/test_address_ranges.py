"""Address ranges of a data directory, and their use."""

import os
from ipaddress import ip_network

import msgspec
import pytest
from hypothesis import given, strategies as st

from corral.config import POD_CIDRS, SERVICE_CIDRS, Layout
from corral.daemon.address_ranges import Ranges, chosen, companion, in_use, load, save
from corral.node.host.proc import acquire_lock
from corral.node.state import machine_record as records

OURS = Ranges(
    (ip_network("10.230.0.0/16"), ip_network("fd00:10:230::/56")),
    (ip_network("10.130.0.0/16"), ip_network("fd00:10:130::/112")),
)


def test_default_ranges_are_companions():
    assert chosen(None, None, None) == Ranges(POD_CIDRS, SERVICE_CIDRS)
    assert companion(POD_CIDRS[0], 56) == POD_CIDRS[1]
    assert companion(SERVICE_CIDRS[0], 112) == SERVICE_CIDRS[1]


def test_given_ipv4_ranges_get_companions_of_ipv6():
    assert chosen(None, OURS.pods[:1], OURS.services[:1]) == OURS
    named = (OURS.pods[0], ip_network("fd77::/56"))
    assert chosen(None, named, None) == Ranges(named, SERVICE_CIDRS)


def test_stored_ranges_are_kept_unless_others_are_given():
    other = (ip_network("10.1.0.0/16"), ip_network("fd77::/56"))
    assert chosen(OURS, None, None) == OURS
    assert chosen(OURS, other, None) == Ranges(other, OURS.services)
    assert chosen(Ranges(other), other[:1], None) == Ranges(other)  # IPv6 as it was named once


networks = st.tuples(st.integers(0, 2**32 - 1), st.integers(8, 28)).map(
    lambda pair: ip_network((pair[0] >> 32 - pair[1] << 32 - pair[1], pair[1]))
)


@given(networks, networks)
def test_companions_overlap_only_if_their_ipv4_ranges_begin_alike(one, other):
    overlap = companion(one, 56).overlaps(companion(other, 112))
    assert overlap == (one.network_address == other.network_address)
    assert companion(one, 56).is_private


def test_ranges_are_stored_in_a_private_file(tmp_path):
    layout = Layout(tmp_path)
    assert load(layout) is None
    save(layout, OURS)
    assert load(layout) == OURS
    assert layout.ranges.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [layout.ranges.name]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"pods":["ten"],"services":[]}', b'{"pods":[],"services":[]}']
)
def test_an_invalid_file_is_ignored(tmp_path, content):
    layout = Layout(tmp_path)
    layout.ranges.write_bytes(content)
    assert load(layout) is None


def test_ranges_are_in_use_until_machines_have_ended(tmp_path):
    layout = Layout(tmp_path)
    assert not in_use(layout)
    machine = layout.nodes / "here" / "machines" / "uid"
    machine.mkdir(parents=True)
    record = records.Record(namespace="a", instance="b", uid="uid", pod="c", pod_uid="d")
    records.write(machine, record.started())
    assert in_use(layout)
    records.write(machine, msgspec.structs.replace(record, stage=records.Stage.ENDED))
    assert not in_use(layout)


def test_ranges_are_in_use_while_the_network_exists(tmp_path):
    layout = Layout(tmp_path)
    holder = layout.network / "holder"
    holder.mkdir(parents=True)
    descriptor = acquire_lock(holder)
    assert descriptor is not None
    assert in_use(layout)
    os.close(descriptor)
    assert not in_use(layout)
