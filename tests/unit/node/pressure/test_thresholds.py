"""Thresholds of pressure, as options set them."""

import pytest

from corral.config import THRESHOLDS
from corral.node.pressure.thresholds import (
    Observation,
    Threshold,
    parse_thresholds,
    shortages,
)

GIBIBYTE = 2**30


def test_a_kubelets_syntax_is_parsed_with_memory_first():
    assert parse_thresholds("nodefs.available<10%, memory.available<100Mi") == (
        Threshold("memory.available", amount=100 * 2**20),
        Threshold("nodefs.available", share=0.1),
    )


@pytest.mark.parametrize("text", ["none", "", "nodefs.available<0%", "imagefs.available<100%"])
def test_thresholds_can_be_disabled(text):
    assert parse_thresholds(text) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("memory.available", "expected <signal><operator><value>"),
        ("memory.available>1Gi", "expected <signal><operator><value>"),
        ("memory.available<", "expected <signal><operator><value>"),
        ("cpu.available<1", "unsupported eviction signal cpu.available"),
        ("memory.available<much", "much is no quantity"),
        ("memory.available<-1", "must be positive"),
        ("nodefs.available<101%", "from 0% to 100%"),
        ("nodefs.available<x%", "x% is no share"),
        ("nodefs.available<nan%", "from 0% to 100%"),
        ("pid.available<1,pid.available<2", "duplicate eviction threshold specified for pid"),
    ],
)
def test_invalid_thresholds_are_named(text, why):
    with pytest.raises(ValueError, match=why):
        parse_thresholds(text)


def test_thresholds_of_large_disks_are_absolute():
    seen = {
        "memory.available": Observation(GIBIBYTE, 16 * GIBIBYTE),
        "nodefs.available": Observation(GIBIBYTE, 2048 * GIBIBYTE),
        "nodefs.inodesFree": Observation(10**6, 10**7),
        "pid.available": Observation(30_000, 32_768),
    }
    assert not [*shortages(parse_thresholds(THRESHOLDS), seen)]


def test_shortages_have_the_message_of_a_kubelet():
    thresholds = parse_thresholds("memory.available<100Mi,pid.available<10%,nodefs.available<1Gi")
    seen = {
        "memory.available": Observation(50 * 2**20, GIBIBYTE),
        "pid.available": Observation(99, 1000),
        "nodefs.available": Observation(GIBIBYTE, 2 * GIBIBYTE),
    }
    assert [each.describe() for each in shortages(thresholds, seen)] == [
        "Threshold quantity: 100Mi, available: 50Mi. ",
        "Threshold quantity: 100, available: 99. ",
    ]
