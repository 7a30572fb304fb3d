"""Which checkpoints a node that is short of disk removes."""

import msgspec

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.node.agent.checkpoints import evictable

POOL = [
    {
        "apiVersion": "corral.dev/v1alpha1",
        "kind": "VirtualMachineWarmPool",
        "name": "spares",
        "uid": "1",
        "controller": True,
    }
]


def checkpoint(name, *, minute=0, node="node1", ready="True", owners=POOL, deleted=None):
    metadata = {
        "name": name,
        "namespace": "default",
        "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
        "ownerReferences": owners,
    }
    if deleted:
        metadata["deletionTimestamp"] = deleted
    document = {
        "metadata": metadata,
        "spec": {"source": {"name": "s"}},
        "status": {"nodeName": node, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(document, VirtualMachineCheckpoint)


def names(*checkpoints, used=()):
    found = evictable(checkpoints, "node1", lambda each: each.metadata.name not in used)
    return [each.metadata.name for each in found]


def test_the_oldest_goes_first():
    assert names(checkpoint("b", minute=2), checkpoint("a", minute=9), checkpoint("c")) == [
        *("c", "b", "a")
    ]


def test_those_of_users_and_of_other_owners_stay():
    other = [{**POOL[0], "kind": "VirtualMachine"}]
    owned = [{**POOL[0], "controller": False}]
    assert names(*(checkpoint("x", owners=each) for each in ([], other, owned))) == []


def test_those_that_vmis_use_and_those_without_files_here_stay():
    others = [
        checkpoint("elsewhere", node="node2"),
        checkpoint("failed", ready="False"),
        checkpoint("deleted", deleted="2026-01-01T01:00:00Z"),
        checkpoint("used"),
    ]
    assert names(*others, checkpoint("unused"), used={"used"}) == ["unused"]
