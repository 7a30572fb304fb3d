"""Tests of what nodes of other hosts may change in the objects that are theirs."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from tests.unit.server.authz.test_node_authorizer import (
    LABELS,
    LEASES,
    MACHINES,
    NODES,
    cluster,
    node,
)

from corral.api.errors import Forbidden
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.request import User
from corral.server.admission.node_restriction import NodeRestriction
from corral.server.request.call import storage

__all__ = ["cluster"]
RESERVED = "node-restriction.kubernetes.io/trusted"


def addresses(*told):
    return {"status": {"addresses": [{"type": "InternalIP", "address": each} for each in told]}}


async def test_a_node_registers_itself_only(cluster):
    n3 = node(cluster, "n3")
    refused = await n3("POST", NODES, {"metadata": {"name": "n4"}})
    assert refused.status == 403
    assert 'node "n3" is not allowed to modify node "n4"' in refused["message"]
    assert (await n3("POST", NODES, {"metadata": {"name": "n3"}})).status == 201


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"labels": {RESERVED: "yes"}}}, f"set the label {RESERVED}"),
        (
            {"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}},
            "have the label kubernetes.io/hostname of another node",
        ),
        ({"spec": {"podCIDRs": ["10.244.0.0/17"]}}, "change spec.podCIDRs"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "change spec.taints"),
        ({"spec": {"unschedulable": True}}, "change spec.unschedulable"),
        ({"spec": {"providerID": "x://y"}}, "change spec.providerID"),
    ],
)
async def test_a_node_cannot_change_fields_of_administrators(cluster, change, why):
    refused = await node(cluster, "n1").patch(f"{NODES}/n1", change)
    assert refused.status == 403
    assert f'node "n1" is not allowed to {why}' in refused["message"]
    assert (await cluster.patch(f"{NODES}/n1", change)).status == 200


async def test_a_new_node_cannot_have_the_pod_range_of_another(cluster):
    ranges = {"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}
    assert (await cluster.patch(f"{NODES}/n1", ranges)).status == 200
    refused = await node(cluster, "n3")("POST", NODES, {"metadata": {"name": "n3"}, **ranges})
    assert refused.status == 403
    assert "take the pod range of node n1" in refused["message"]


async def test_a_node_cannot_have_the_address_of_another(cluster):
    n1, n2 = node(cluster, "n1"), node(cluster, "n2")
    status = f"{NODES}/{{}}/status"
    assert (await n1.patch(status.format("n1"), addresses("192.0.2.1"))).status == 200
    refused = await n2.patch(status.format("n2"), addresses("192.0.2.2", "192.0.2.1"))
    assert refused.status == 403
    assert "is not allowed to have the address of node n1: 192.0.2.1" in refused["message"]
    assert (await n2.patch(status.format("n2"), addresses("192.0.2.2"))).status == 200


async def test_a_node_creates_its_own_lease_only(cluster):
    n3 = node(cluster, "n3")
    refused = await n3("POST", LEASES, {"metadata": {"name": "n4"}})
    assert refused.status == 403
    assert "is only allowed to write its own lease" in refused["message"]
    assert (await n3("POST", LEASES, {"metadata": {"name": "n3"}})).status == 201


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"terminationGracePeriodSeconds": 1}}, "change the spec of a VMI"),
        ({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}},
         "change the owners of a VMI"),
        ({"status": {"nodeName": "n2"}}, "move a VMI"),
    ],
)  # fmt: skip
async def test_a_node_changes_only_the_status_of_a_vmi(cluster, change, why):
    n1 = node(cluster, "n1")
    refused = await n1.patch(f"{MACHINES}/on-n1", change)
    assert refused.status == 403
    assert why in refused["message"]
    assert (await n1.patch(f"{MACHINES}/on-n1", LABELS)).status == 200


@pytest.mark.parametrize(
    ("state", "moved", "status"),
    [
        ({"sourceNode": "n2", "targetNode": "n1"}, "n1", 200),
        ({"sourceNode": "n2", "targetNode": "n1"}, "n3", 403),
        ({"sourceNode": "n2", "targetNode": "n3"}, "n1", 403),
        ({"sourceNode": "n3", "targetNode": "n1"}, "n1", 403),
        ({"sourceNode": "n2", "targetNode": "n1", "failed": True}, "n1", 403),
    ],
    ids=["to itself", "to another", "to a node that is not the target", "from another", "failed"],
)
def test_the_target_of_a_migration_moves_the_vmi_to_itself(state, moved, status):
    user = User(name="system:node:n1", groups=("system:nodes",))
    call = SimpleNamespace(
        user=user, request=SimpleNamespace(user=None), kind=VIRTUAL_MACHINE_INSTANCE
    )
    migrates = {"migrationUid": "m", **state}

    def vmi(node):
        metadata = {"name": "vm", "namespace": "default"}
        return {"metadata": metadata, "status": {"nodeName": node, "migrationState": migrates}}

    guard = NodeRestriction(None).guards()[storage(VIRTUAL_MACHINE_INSTANCE)]
    refused = nullcontext() if status == 200 else pytest.raises(Forbidden, match="to move a VMI")
    with refused:
        guard(call, vmi(moved), vmi("n2"))
