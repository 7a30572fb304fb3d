"""VMIs that must never run twice."""

import msgspec
import pytest

from corral.api.kinds.vmi.exclusive import is_exclusive
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

VM = {
    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a", "uid": "u",
    "controller": True,
}  # fmt: skip


def vmi(owner=None, **volume):
    document = {
        "metadata": {"name": "a", "ownerReferences": [owner] if owner else []},
        "spec": {
            "domain": {"devices": {}},
            "volumes": [{"name": "root", **volume}] if volume else [],
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize(
    ("given", "exclusive"),
    [
        (vmi(), False),
        (vmi(containerDisk={"image": "a"}), False),
        (vmi({**VM, "kind": "VirtualMachineInstanceReplicaSet"}), False),
        (vmi({**VM, "controller": False}), False),
        (vmi(VM), True),
        (vmi(persistentVolumeClaim={"claimName": "a"}), True),
        (vmi(dataVolume={"name": "a"}), True),
    ],
)
def test_vmis_of_a_vm_or_with_a_claim_are_exclusive(given, exclusive):
    assert is_exclusive(given) is exclusive
