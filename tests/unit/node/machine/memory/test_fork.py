"""Whether a VMI can start from a checkpoint, as far as that shows before QEMU is started."""

import msgspec
import pytest

from corral.api.kinds.vmi.forkable import volumes_of
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import MemoryMisfitError
from corral.node.machine.memory.fork import Origin
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles
from corral.node.storage.saved_memory import State

SEED = {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}
CLAIM = {"name": "seed", "persistentVolumeClaim": {"claimName": "data"}}


def vmi(memory="64M", volumes=(SEED,)):
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"memory": {"guest": memory}, "devices": {}}, "volumes": volumes},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def origin(tmp_path):
    made = Checkpoint(
        key="default/base",
        instance="default/vm",
        identity="uid",
        taken_at="2026-01-01T00:00:00Z",
        shape=(),
        volumes=volumes_of(vmi()),
        memory=State(64_004_096, 0),  # QEMU rounds it up to 8 KiB
    )
    return Origin(CheckpointFiles(tmp_path), made, "base")


def test_the_same_memory_and_volumes_fit(origin):
    origin.check(vmi())


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (vmi("128M"), "its memory has 128000000 bytes, that of the source 64004096"),
        (vmi("32M"), "its memory has"),
        (vmi(volumes=()), r"its volumes are none, those of the source seed \(cloudInitNoCloud\)"),
        (vmi(volumes=(CLAIM,)), r"spec.volumes\[0\]"),
    ],
)
def test_another_vmi_does_not(origin, other, why):
    with pytest.raises(MemoryMisfitError, match=why):
        origin.check(other)
