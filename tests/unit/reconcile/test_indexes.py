import msgspec
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeSpec, Pod, PodSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.indexes import (
    by_class,
    by_controller,
    by_namespace,
    by_node,
    by_vmi,
    by_vmi_node,
)

OWNERS = [
    OwnerReference("v1", "ConfigMap", "other", "1"),
    OwnerReference("kubevirt.io/v1", "VirtualMachineInstance", "vm", "2", controller=True),
]
POD = Pod(
    metadata=ObjectMeta(name="a", namespace="default", ownerReferences=OWNERS),
    spec=PodSpec(containers=[], nodeName="node1"),
)


def test_pods_are_indexed_by_controller_namespace_and_node():
    assert by_controller(POD) == ("2",)
    assert by_namespace(POD) == ("default",)
    assert by_node(POD) == ("node1",)


def test_what_is_missing_is_an_empty_value():
    pod = Pod(metadata=ObjectMeta(name="a"))
    assert by_controller(pod) == by_namespace(pod) == by_node(pod) == ("",)
    vmi = msgspec.convert(
        {"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}}}, VirtualMachineInstance
    )
    assert by_vmi_node(vmi) == ("",)


def test_migrations_are_indexed_by_vmi_and_volumes_by_class():
    document = {"metadata": {"name": "m", "namespace": "default"}, "spec": {"vmiName": "vm"}}
    assert by_vmi(msgspec.convert(document, VirtualMachineInstanceMigration)) == ("default/vm",)
    spec = PersistentVolumeSpec(storageClassName="fast")
    assert by_class(PersistentVolume(metadata=ObjectMeta(name="v"), spec=spec)) == ("fast",)
