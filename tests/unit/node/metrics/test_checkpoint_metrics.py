"""Metrics of checkpoints."""

from corral.node.checkpoint_usage import CheckpointUsage
from corral.node.metrics.checkpoint_metrics import CheckpointMetrics


def samples(metrics):
    return {
        (sample.name, sample.labels.get("reason"), sample.labels.get("le")): sample.value
        for family in metrics.families()
        for sample in family.samples
    }


def test_a_node_without_checkpoints_has_no_metrics():
    assert list(CheckpointMetrics("node1", CheckpointUsage).families()) == []


def test_checkpoints_are_counted_with_their_pauses():
    metrics = CheckpointMetrics("node1", lambda: CheckpointUsage(2, 12, 4096))
    metrics.completed(0.5, 0.03)
    metrics.failed("NoSpace")
    found = samples(metrics)
    assert found["corral_checkpoints", None, None] == 2
    assert found["corral_checkpoint_bytes", None, None] == 12
    assert found["corral_checkpoint_shared_memory_bytes", None, None] == 4096
    assert found["corral_checkpoint_pause_seconds_bucket", None, "0.025"] == 0
    assert found["corral_checkpoint_pause_seconds_bucket", None, "0.05"] == 1
    assert found["corral_checkpoint_failures_total", "NoSpace", None] == 1
