"""VirtualMachines in a whole cluster: their machines come, go and come again as they are told."""

from typing import Any

from tests.sim.cluster import cluster

from corral.api.kinds.virtualmachine import FINALIZER, VirtualMachine
from corral.api.kinds.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key

KEY = Key("default", "testvm")


def vm(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"labels": {"kubevirt.io/size": "small"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "domain": {
                        "resources": {"requests": {"memory": "64M"}},
                        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                    },
                    "volumes": [{"name": "root", "containerDisk": {"image": "cirros:1"}}],
                },
            },
            **spec,
        },
    }


async def has(c, word: str, seconds: float = 120.0) -> VirtualMachine:
    """Wait until the VirtualMachine tells this word."""
    found: VirtualMachine | None = None

    async def tells() -> bool:
        nonlocal found
        found = await c.client.get(VirtualMachine, *reversed(KEY))
        return found.status.printable_status == word

    try:
        await c.until(tells, seconds)
    except TimeoutError:
        raise AssertionError(f"{found and found.status} instead of {word}") from None
    assert found is not None
    return found


async def machine(c) -> Machine:
    return await c.client.get(Machine, *reversed(KEY))


async def test_a_machine_is_made_and_told_of():
    async with cluster() as c:
        await c.client.create(VirtualMachine, vm())
        told = await has(c, "Running")
        assert told.metadata.finalizers == [FINALIZER]
        made = await machine(c)
        assert made.metadata.labels["kubevirt.io/size"] == "small"
        assert FINALIZER in made.metadata.finalizers
