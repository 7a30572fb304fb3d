import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.status.live_migratable import live_migratable


def machine(binding, **annotations):
    interfaces = [{"name": "default", binding: {}}] if binding else []
    document = {
        "metadata": {"name": "vm", "annotations": annotations},
        "spec": {
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": [{"name": "default", "pod": {}}] if binding else [],
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        ("bridge", "InterfaceNotLiveMigratable"),
        ("masquerade", "MigrationNotSupported"),
        ("passtBinding", "MigrationNotSupported"),
        ("", "MigrationNotSupported"),
    ],
)
def test_what_is_in_the_way_is_told_the_network_first(binding, reason):
    assert live_migratable(machine(binding))[:2] == ("False", reason)


def test_a_bridge_may_be_allowed():
    allowed = {"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
    assert live_migratable(machine("bridge", **allowed))[1] == "MigrationNotSupported"
