"""Metrics of checkpoints."""

import msgspec

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.node.metrics.checkpoint_metrics import CheckpointMetrics


def checkpoint(node, size, ready="True"):
    document = {
        "metadata": {"name": "base", "namespace": "default"},
        "spec": {"source": {"name": "vm"}},
        "status": {
            "node": node,
            "sizeBytes": size,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(document, VirtualMachineCheckpoint)


def samples(metrics):
    return {
        (sample.name, sample.labels.get("reason"), sample.labels.get("le")): sample.value
        for family in metrics.families()
        for sample in family.samples
    }


def test_a_node_without_checkpoints_has_no_metrics():
    elsewhere = [checkpoint("other", 5), checkpoint("node1", 0, "False")]
    assert list(CheckpointMetrics("node1", lambda: elsewhere).families()) == []


def test_complete_checkpoints_of_the_node_are_counted_with_their_pauses():
    listed = [checkpoint("node1", 5), checkpoint("node1", 7), checkpoint("other", 100)]
    metrics = CheckpointMetrics("node1", lambda: listed)
    metrics.completed(0.5, 0.03)
    metrics.failed("NoSpace")
    found = samples(metrics)
    assert found["corral_checkpoints", None, None] == 2
    assert found["corral_checkpoint_bytes", None, None] == 12
    assert found["corral_checkpoint_pause_seconds_bucket", None, "0.025"] == 0
    assert found["corral_checkpoint_pause_seconds_bucket", None, "0.05"] == 1
    assert found["corral_checkpoint_failures_total", "NoSpace", None] == 1
