"""What a fork can have a copy of."""

import msgspec
import pytest

from corral.api.kinds.vmi.forkable import obstacles, volumes_of
from corral.api.kinds.vmi.vmi import VirtualMachineInstance


def vmi(**spec):
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}, **spec},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def test_volumes_that_are_made_anew_or_copied_are_no_obstacle():
    volumes = [
        {"name": "root", "containerDisk": {"image": "demo"}},
        {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
        {"name": "scratch", "emptyDisk": {"capacity": "1Mi"}},
    ]
    assert list(obstacles(vmi(volumes=volumes).spec)) == []


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"dataVolume": {"name": "data"}},
        {"hostDisk": {"path": "/data", "type": "Disk"}},
    ],
)
def test_a_disk_that_outlives_the_machine_is_an_obstacle(source):
    [why] = obstacles(vmi(volumes=[{"name": "data", **source}]).spec)
    assert why.startswith('spec.volumes[0]: the disk of volume "data"')


def test_volumes_are_told_apart_by_name_and_source():
    disk = vmi(volumes=[{"name": "root", "containerDisk": {"image": "demo"}}])
    empty = vmi(volumes=[{"name": "root", "emptyDisk": {"capacity": "1Mi"}}])
    assert volumes_of(disk) == ("root (containerDisk)",)
    assert volumes_of(empty) != volumes_of(disk)
