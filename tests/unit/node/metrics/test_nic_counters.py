"""The traffic of a guest's cards, read from the kernel's statistics of a process's network."""

from pathlib import Path

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import Card, Flow
from corral.node.metrics import vmi_metrics

HEAD = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
"""  # noqa: E501
LO = "    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"
BRIDGE = "k6t-eth0: 7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n"
TAP = "  tap0:1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n"


def machine(**interface) -> VirtualMachineInstance:
    interfaces = [{"name": "default", "masquerade": {}, **interface}]
    document = {
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": [{"name": "default", "pod": {}}],
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def devices(monkeypatch):
    """Sets the statistics of the kernel."""

    def write(text: str) -> None:
        monkeypatch.setattr(Path, "read_text", lambda path, **_: text)

    return write


def test_bytes_received_from_a_tap_were_sent_by_the_guest(devices):
    devices(HEAD + LO + BRIDGE + TAP)
    assert vmi_metrics.cards(machine(), 1) == {
        "default": Card(
            received=Flow(count=20, bytes=2000, errors=3, drops=4),
            sent=Flow(count=10, bytes=1000, errors=1, drops=2),
        )
    }


def test_taps_outside_of_pod_networks_are_ignored(devices):
    devices(HEAD + LO + TAP)
    assert vmi_metrics.cards(machine(), 1) == {}


def test_a_removed_interface_has_no_counters(devices):
    devices(HEAD + LO + BRIDGE + TAP)
    assert vmi_metrics.cards(machine(state="absent"), 1) == {}


def test_a_finished_process_has_no_counters():
    assert vmi_metrics.cards(machine(), 2**22 + 1) == {}
    assert vmi_metrics.cards(machine(), None) == {}
