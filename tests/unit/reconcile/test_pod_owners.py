import msgspec
import pytest

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.objects import Owner
from corral.reconcile.pod_owners import PodOwners

GROUPS = {"VirtualMachinePool": "pool.kubevirt.io/v1beta1"}


class Informers:
    """The objects of a cache by kind and name."""

    def __init__(self, *objects):
        self.objects = objects

    def of(self, view):
        return Informer([each for each in self.objects if isinstance(each, view)])


class Informer:
    def __init__(self, objects):
        self.objects = {each.key: each for each in objects}

    def get(self, key):
        return self.objects.get(key)


class Context:
    def __init__(self, *objects):
        self.informers = Informers(*objects)


def reference(kind, name, uid):
    return {
        "apiVersion": GROUPS.get(kind, "kubevirt.io/v1"),
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }


def of(view, name, owner=None, **spec):
    metadata = {"name": name, "namespace": "default", "uid": name}
    if owner is not None:
        metadata["ownerReferences"] = [reference(*owner)]
    return msgspec.convert({"metadata": metadata, "spec": spec}, view)


TEMPLATE = {"metadata": {}, "spec": {"domain": {"devices": {}}}}


def vmi(owner=None):
    return of(VirtualMachineInstance, "vmi", owner, domain={"devices": {}})


def vm(owner=None, strategy="Always"):
    return of(VirtualMachine, "vm", owner, template=TEMPLATE, runStrategy=strategy)


def pool(strategy="Always"):
    template = {"metadata": {}, "spec": {"template": TEMPLATE, "runStrategy": strategy}}
    return of(VirtualMachinePool, "pool", selector={}, virtualMachineTemplate=template, replicas=1)


def replica_set():
    return of(VirtualMachineInstanceReplicaSet, "set", selector={}, template=TEMPLATE)


OF_SET = ("VirtualMachineInstanceReplicaSet", "set", "set")
OF_VM = ("VirtualMachine", "vm", "vm")
OF_POOL = ("VirtualMachinePool", "pool", "pool")


@pytest.mark.parametrize(
    ("objects", "top"),
    [
        ((vmi(),), "vmi"),
        ((vmi(OF_SET), replica_set()), "set"),
        ((vmi(OF_VM), vm()), "vm"),
        ((vmi(OF_VM), vm(OF_POOL), pool()), "pool"),
        ((vmi(OF_VM), vm(OF_POOL), pool("Manual")), "vm"),
        ((vmi(OF_SET),), None),
        ((vmi(OF_VM), vm(OF_POOL)), None),
        ((vmi(("VirtualMachine", "vm", "another uid")), vm()), None),
        ((vmi(("Deployment", "vm", "vm")), vm()), None),
    ],
)
def test_the_topmost_owner_of_a_pod_is_found(objects, top):
    owners = PodOwners(Context(*objects))
    found = owners.top(Owner(**_owner("VirtualMachineInstance", "vmi")), "default")
    assert (None if found is None else found.metadata.name) == top


def test_an_owner_of_another_namespace_is_not_found():
    owners = PodOwners(Context(vmi()))
    assert owners.top(Owner(**_owner("VirtualMachineInstance", "vmi")), "other") is None


def _owner(kind, name):
    return {
        "api_version": "kubevirt.io/v1",
        "kind": kind,
        "name": name,
        "uid": name,
        "controller": True,
        "blocks": True,
    }
