"""Namespaces that are deleted: in order, with the rest in their conditions."""

import asyncio

import pytest
from lightkube.models.admissionregistration_v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lightkube.models.core_v1 import ConfigMap, Namespace, Secret
from tests.sim.cluster import cluster, replica_set

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key

pytestmark = pytest.mark.looptime
SPACE = Key("", "lab")


async def space(c, *finalizers):
    """A namespace with a ConfigMap that these finalizers hold."""
    await c.client.create(Namespace, {"metadata": {"name": SPACE.name}})
    metadata = {"name": "a", "namespace": SPACE.name, "finalizers": list(finalizers)}
    await c.client.create(ConfigMap, {"metadata": metadata})


async def deletion_conditions(c):
    status = (await c.client.get(Namespace, SPACE.name)).status
    return {each.type: (each.status, each.message) for each in status.conditions or ()}


async def gone(c):
    async def is_gone():
        try:
            await c.client.get(Namespace, SPACE.name)
        except NotFound:
            return True
        return False

    await c.until(is_gone, 120)


async def test_conditions_report_remaining_objects_and_finalizers():
    async with cluster() as c:
        await space(c, "example.com/hold")
        await c.client.delete(Namespace, SPACE)

        async def is_reported():
            return bool(await deletion_conditions(c))

        await c.until(is_reported, 10)
        said = await deletion_conditions(c)
        assert len(said) == 5
        assert said["NamespaceContentRemaining"] == (
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances",
        )
        held = (
            "Some content in the namespace has finalizers remaining: "
            "example.com/hold in 1 resource instances"
        )
        assert said["NamespaceFinalizersRemaining"] == (
            "True",
            held,
        )
        assert said["NamespaceDeletionContentFailure"][0] == "False"
        version = (await c.client.get(Namespace, SPACE.name)).metadata.resourceVersion
        await asyncio.sleep(60)
        assert (await c.client.get(Namespace, SPACE.name)).metadata.resourceVersion == version
        release = {"metadata": {"finalizers": None}}
        await c.client.patch(ConfigMap, Key(SPACE.name, "a"), release)
        await gone(c)


async def test_pods_are_deleted_before_everything_else():
    async with cluster() as c:
        await space(c)
        await c.client.create(Secret, {"metadata": {"name": "s", "namespace": SPACE.name}})
        document = replica_set("test", 2)
        document["metadata"]["namespace"] = SPACE.name
        document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
        await c.client.create(ReplicaSet, document)

        async def run():
            return [one.status.phase for one in await c.machines(SPACE.name)] == ["Running"] * 2

        await c.until(run)
        for machine in await c.machines(SPACE.name):
            c.guest(machine).shutdown_seconds = 15
        await c.client.delete(Namespace, SPACE)
        await asyncio.sleep(10)
        assert len(await c.pods(SPACE.name)) == 2
        assert (await c.client.get(Secret, "s", SPACE.name)).metadata.deletionTimestamp is None
        assert (await c.replica_set("test", SPACE.name)).metadata.deletion_timestamp is None
        said = await deletion_conditions(c)
        assert said["NamespaceContentRemaining"] == (
            "True",
            "Some resources are remaining: pods. has 2 resource instances",
        )
        await gone(c)


async def test_a_rejected_deletion_is_reported_and_delays_no_other_kind():
    async with cluster() as c:
        await space(c)
        await c.client.create(Secret, {"metadata": {"name": "s", "namespace": SPACE.name}})
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
        policy = {
            "metadata": {"name": "keep"},
            "spec": {
                "matchConstraints": {"resourceRules": [{**rule, "operations": ["DELETE"]}]},
                "validations": [{"expression": "false", "message": "they are kept"}],
            },
        }
        await c.client.create(ValidatingAdmissionPolicy, policy)
        binding = {
            "metadata": {"name": "keep"},
            "spec": {"policyName": "keep", "validationActions": ["Deny"]},
        }
        await c.client.create(ValidatingAdmissionPolicyBinding, binding)
        await c.client.delete(Namespace, SPACE)

        async def is_reported():
            status, message = (await deletion_conditions(c)).get(
                "NamespaceDeletionContentFailure", ("", "")
            )
            return status == "True" and "they are kept" in message

        await c.until(is_reported, 10)
        with pytest.raises(NotFound):
            await c.client.get(Secret, "s", SPACE.name)
        await c.client.delete(ValidatingAdmissionPolicyBinding, Key("", "keep"))
        await gone(c)
