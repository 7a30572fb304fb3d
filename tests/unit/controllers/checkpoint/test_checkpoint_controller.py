import msgspec
import pytest

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.checkpoint.checkpoint_controller import missing_source


def checkpoint(**status):
    document = {
        "metadata": {"name": "base", "namespace": "default"},
        "spec": {"source": {"name": "vm"}},
        "status": status,
    }
    return msgspec.convert(document, VirtualMachineCheckpoint)


def vmi(node):
    document = {
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {"domain": {"devices": {}}},
        "status": {"nodeName": node},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize(
    ("source", "reason"),
    [(None, "SourceNotFound"), (vmi(""), "SourceNotScheduled"), (vmi("node1"), None)],
)
def test_a_source_on_no_node_is_reported(source, reason):
    found = missing_source(checkpoint(), source)
    assert (found and found[0]) == reason


def test_a_checkpoint_that_has_begun_is_reported_by_its_node():
    assert missing_source(checkpoint(node="node1", sourceUID="1"), None) is None
