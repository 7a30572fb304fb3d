"""Tests of what nodes of other hosts may change in the objects that are theirs."""

import base64
from contextlib import nullcontext
from ipaddress import ip_network
from types import SimpleNamespace

import pytest
from tests.unit.server.authz.test_node_authorizer import (
    COMPUTE,
    LABELS,
    LEASES,
    MACHINES,
    NODES,
    SECRETS,
    cluster,
    node,
)
from tests.unit.server.conftest import PODS, Outside

from corral.api.errors import Forbidden
from corral.api.kinds.core.node_addresses import WIREGUARD_KEY
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.request import User
from corral.server.admission.node_restriction import NodeRestriction
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.server.request.call import storage

__all__ = ["cluster"]
RESERVED = "node-restriction.kubernetes.io/trusted"


def addresses(*values):
    return {"status": {"addresses": [{"type": "InternalIP", "address": each} for each in values]}}


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


async def test_a_node_cannot_have_the_wireguard_key_of_another(cluster):
    n1, n2 = node(cluster, "n1"), node(cluster, "n2")
    keys = [base64.b64encode(bytes([each] * 32)).decode() for each in range(2)]
    patches = [{"metadata": {"annotations": {WIREGUARD_KEY: each}}} for each in keys]
    assert (await n1.patch(f"{NODES}/n1", patches[0])).status == 200
    refused = await n2.patch(f"{NODES}/n2", patches[0])
    assert refused.status == 403
    assert "is not allowed to have the WireGuard key of node n1" in refused["message"]
    assert (await n2.patch(f"{NODES}/n2", patches[1])).status == 200
    assert (await n1.patch(f"{NODES}/n1", patches[0])).status == 200
    assert (await n1.patch(f"{NODES}/n2", patches[0])).status == 403


def shows(*ips):
    return {"status": {"podIP": ips[0], "podIPs": [{"ip": each} for each in ips]}}


@pytest.fixture
async def ranged(cluster):
    """The two nodes with a pod range each; hosts lead packets to the addresses of pods."""
    routed = ServiceRanges(routed_pods=(ip_network("10.244.0.0/16"), ip_network("fd00::/56")))
    server = ApiServer(cluster.server.store, services=routed)
    ranged = Outside(server, cluster.user)
    for number in (1, 2):
        ranges = [f"10.244.{number}.0/24", f"fd00:0:0:{number}::/64"]
        spec = {"spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}
        assert (await ranged.patch(f"{NODES}/n{number}", spec)).status == 200
    return ranged


async def test_a_pod_shows_addresses_of_its_node_only(ranged):
    n1, n2 = node(ranged, "n1"), node(ranged, "n2")
    own, other = f"{PODS}/pod-on-n1/status", f"{PODS}/pod-on-n2/status"
    assert (await n1.patch(own, shows("10.244.1.7", "fd00:0:0:1::7"))).status == 200
    for foreign in ("10.244.1.7", "10.244.9.9", "fd00:0:0:1::7"):
        refused = await n2.patch(other, shows(foreign))
        assert refused.status == 403
        assert f'node "n2" is not allowed to give a pod the address {foreign}' in refused["message"]
    assert (await n2.patch(other, {"status": {"podIP": "10.244.1.7"}})).status == 403
    assert (await n2.patch(other, shows("192.0.2.2"))).status == 200, "that of a host"


async def test_a_pod_that_a_vmi_migrates_to_shows_the_addresses_of_the_one_it_leaves(ranged):
    n1, n2 = node(ranged, "n1"), node(ranged, "n2")
    assert (await n1.patch(f"{PODS}/pod-on-n1/status", shows("10.244.1.7"))).status == 200
    source = (await ranged("GET", f"{PODS}/pod-on-n1"))["metadata"]["labels"]
    await ranged.create(PODS, "target", labels=source, spec={**COMPUTE, "nodeName": "n2"})
    assert (await n2.patch(f"{PODS}/target/status", shows("10.244.1.8"))).status == 403
    assert (await n2.patch(f"{PODS}/target/status", shows("10.244.1.7"))).status == 200
    await ranged("DELETE", f"{PODS}/pod-on-n1?gracePeriodSeconds=0")
    ready = shows("10.244.1.7") | {"status": {**shows("10.244.1.7")["status"], "message": "x"}}
    assert (await n2.patch(f"{PODS}/target/status", ready)).status == 200, "it keeps it"


async def test_the_addresses_of_other_networks_are_not_compared(cluster):
    assert (
        await node(cluster, "n1").patch(f"{PODS}/pod-on-n1/status", shows("10.244.9.9"))
    ).status == 200


async def test_a_node_cannot_label_a_pod_as_that_of_another_vmi(cluster):
    n1 = node(cluster, "n1")
    uid = (await cluster("GET", f"{MACHINES}/on-n2"))["metadata"]["uid"]
    stolen = {"metadata": {"labels": {"kubevirt.io/created-by": uid}}}
    refused = await n1.patch(f"{PODS}/pod-on-n1/status", stolen)
    assert refused.status == 403
    assert 'node "n1" is not allowed to change the labels of a pod' in refused["message"]
    assert (await n1("GET", f"{SECRETS}/on-n2")).status == 403


async def test_a_new_node_cannot_have_a_part_of_the_pod_range_of_another(cluster):
    ranges = {"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}
    assert (await cluster.patch(f"{NODES}/n1", ranges)).status == 200
    for part in ("10.244.1.7/32", "10.244.0.0/16"):
        taken = {"spec": {"podCIDR": part, "podCIDRs": [part]}}
        refused = await node(cluster, "n3")("POST", NODES, {"metadata": {"name": "n3"}, **taken})
        assert refused.status == 403
        assert "take the pod range of node n1" in refused["message"]


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
        ({"metadata": {"annotations": {"corral.dev/user-data-secret": "token"}}},
         "change the user data of a VMI"),
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
    call = SimpleNamespace(user=user, is_by_component=False, kind=VIRTUAL_MACHINE_INSTANCE)
    migrates = {"migrationUid": "m", **state}

    def vmi(node):
        metadata = {"name": "vm", "namespace": "default"}
        return {"metadata": metadata, "status": {"nodeName": node, "migrationState": migrates}}

    guard = NodeRestriction(None).guards()[storage(VIRTUAL_MACHINE_INSTANCE)]
    refused = nullcontext() if status == 200 else pytest.raises(Forbidden, match="to move a VMI")
    with refused:
        guard(call, vmi(moved), vmi("n2"))


STATE = {
    "migrationUid": "m",
    "sourceNode": "n1",
    "sourcePod": "p1",
    "targetNode": "n2",
    "targetPod": "p2",
}


@pytest.mark.parametrize("before", [STATE, None])
@pytest.mark.parametrize("field", STATE)
def test_a_node_does_not_decide_who_migrates_where(field, before):
    user = User(name="system:node:n1", groups=("system:nodes",))
    call = SimpleNamespace(user=user, is_by_component=False, kind=VIRTUAL_MACHINE_INSTANCE)

    def vmi(state):
        metadata = {"name": "vm", "namespace": "default"}
        return {"metadata": metadata, "status": {"nodeName": "n1", "migrationState": state}}

    guard = NodeRestriction(None).guards()[storage(VIRTUAL_MACHINE_INSTANCE)]
    guard(call, vmi({**(before or {}), "failed": True, "failureReason": "no room"}), vmi(before))
    with pytest.raises(Forbidden, match=f"to change status.migrationState.{field} of a VMI"):
        guard(call, vmi({**(before or {}), field: "another"}), vmi(before))


CHECKPOINTS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinecheckpoints"


async def checkpoint(cluster, name="base"):
    """Create a checkpoint of the VMI on n1, and return the path of its status."""
    spec = {"source": {"kind": "VirtualMachineInstance", "name": "on-n1"}}
    await cluster.create(CHECKPOINTS, name, spec=spec)
    return f"{CHECKPOINTS}/{name}/status"


def conditions(**statuses):
    listed = [{"type": each, "status": status} for each, status in statuses.items()]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("before", "change", "why"),
    [
        ({}, {"status": {"nodeName": "n2"}}, "give a checkpoint to another node"),
        ({"nodeName": "n1"}, {"status": {"nodeName": ""}}, "give a checkpoint to another node"),
        ({}, {"status": {"sourceUID": "x"}}, "change the source of a checkpoint"),
        (
            {"nodeName": "n1", **conditions(Failed="True")["status"]},
            conditions(Failed="False", Ready="True"),
            "repair a checkpoint that has failed",
        ),
        (
            {"nodeName": "n1", "identity": "one", **conditions(Ready="True")["status"]},
            {"status": {"identity": "two"}},
            "change status.identity of a complete checkpoint",
        ),
    ],
)
async def test_a_node_writes_only_what_it_knows_of_its_checkpoints(cluster, before, change, why):
    path = await checkpoint(cluster)
    assert (await cluster.patch(path, {"status": before})).status == 200
    refused = await node(cluster, "n1").patch(path, change)
    assert refused.status == 403, refused
    assert f'node "n1" is not allowed to {why}' in refused["message"]


async def test_a_node_makes_its_checkpoint_and_reports_that_it_is_damaged(cluster):
    path = await checkpoint(cluster)
    n1 = node(cluster, "n1")
    vmi = await cluster("GET", f"{MACHINES}/on-n1")
    begun = {"nodeName": "n1", "sourceUID": vmi["metadata"]["uid"]}
    made = {"identity": vmi["metadata"]["uid"], "digest": "sha256:0", "sizeBytes": 5}
    for change in (
        {"status": begun},
        {"status": {**made, **conditions(Ready="True")["status"]}},
        {"status": {"forks": 3, **made}},
        conditions(Ready="False", Failed="True"),
    ):
        assert (await n1.patch(path, change)).status == 200
