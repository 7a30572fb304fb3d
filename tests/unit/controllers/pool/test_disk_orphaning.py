"""Which disks of a VirtualMachine are kept."""

import msgspec
from tests.unit.controllers.pool.make import pool, vm

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachineSpec
from corral.controllers.pool.disk_orphaning import disks_of

CREATE_CLAIM, VOLUME = ("", "PersistentVolumeClaim"), ("cdi.kubevirt.io", "DataVolume")


def test_claims_of_templates_and_volumes_are_listed_once():
    one = vm(pool())
    volumes = [
        {"name": "root", "containerDisk": {"image": "cirros"}},
        {"name": "data", "dataVolume": {"name": "data-0"}},
        {"name": "more", "dataVolume": {"name": "more-0"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim-0"}},
    ]
    spec = {
        "dataVolumeTemplates": [{"metadata": {"name": "data-0"}, "spec": {}}],
        "template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}},
    }
    one.spec = msgspec.convert(spec, VirtualMachineSpec)
    assert list(disks_of(one)) == [
        (*CREATE_CLAIM, "claim-0"),
        (*CREATE_CLAIM, "data-0"),
        (*VOLUME, "data-0"),
        (*VOLUME, "more-0"),
    ]
    assert list(disks_of(vm(pool()))) == []
