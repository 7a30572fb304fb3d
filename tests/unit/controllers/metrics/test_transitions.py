"""How long machines take from one phase to the next, as their timestamps say."""

from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.metrics.transitions import Transitions


class Informer:
    """Tells of what a test lets happen."""

    has_synced = True

    def __init__(self):
        self.handlers = []

    def handle(self, handler):
        self.handlers.append(handler)

    def collect(self, old, new):
        for handler in self.handlers:
            handler(old, new)


def machine(*phases):
    """In the last of these phases; it was a second in the first, two in the next and so on."""
    seconds = [sum(range(index + 1)) for index in range(len(phases))]
    entered = [
        {"phase": phase, "phaseTransitionTimestamp": f"2026-01-01T00:00:{second + 1:02}Z"}
        for phase, second in zip(phases, seconds, strict=True)
    ]
    document = {
        "metadata": {"name": "vm", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phases[-1], "phaseTransitionTimestamps": entered},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize("written", [(1, 2, 3, 4), (1, 3, 4), (1, 4)])
async def test_the_duration_of_a_transition_is_between_two_timestamps(written):
    """However many of them one write has set."""
    machines, pods = Informer(), Informer()
    informers = SimpleNamespace(
        of=lambda view: machines if view is VirtualMachineInstance else pods
    )
    transitions = Transitions(SimpleNamespace(informers=informers))
    phases = ("Pending", "Scheduling", "Scheduled", "Running")
    before = [machine(*phases[:count]) for count in written]
    for old, new in pairwise(before):
        machines.collect(old, new)
    sums = {
        tuple(sample.labels.values()): sample.value
        for family in await transitions.collect()
        for sample in family.samples
        if sample.name.startswith("kubevirt_") and sample.name.endswith("_sum")
    }
    assert sums == {
        ("Scheduling", "Pending"): 1,
        ("Scheduled", "Scheduling"): 2,
        ("Running", "Scheduled"): 3,
        ("Scheduling",): 2,
        ("Scheduled",): 4,
        ("Running",): 7,
    }
