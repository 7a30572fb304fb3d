"""The kinds of kubevirt.io and pool.kubevirt.io: names, versions, columns and validation.

Names, columns and versions are those of KubeVirt's CRDs; v1alpha2, which KubeVirt no longer serves,
is accepted for the oldest manifests of its user guide.
"""

from corral.api.kind import Column, Kind, Scale, Version, Webhook, at
from corral.api.kinds.columns import age, condition, count_or_blank, field, number
from corral.api.kinds.kubevirt import pool, pool_validation, v1alpha2, vm_defaults, vm_validation
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi import admission, defaults
from corral.api.kinds.vmi.vmi import GROUP, VirtualMachineInstance
from corral.api.object import Document


def _first_address(document: Document) -> str | None:
    interfaces = at(document, "status", "interfaces")
    return interfaces[0].get("ipAddress") if interfaces else None


VIRTUAL_MACHINE_INSTANCE = Kind(
    group=GROUP,
    plural="virtualmachineinstances",
    short=("vmi", "vmis"),
    categories=("all",),
    versions=(
        Version(name="v1"),
        *v1alpha2.versions(v1alpha2.read_instance, v1alpha2.spell_instance),
    ),
    view=VirtualMachineInstance,
    status=False,
    columns=(
        age(),
        field("Phase", "status", "phase", description="phase of the machine"),
        Column(
            name="IP",
            cell=_first_address,
            description="its first address",
            json_path=".status.interfaces[0].ipAddress",
        ),
        field("NodeName", "status", "nodeName", description="the node that it runs on"),
        condition("Ready", "Ready", description="whether it is ready"),
        condition(
            "Live-Migratable",
            "LiveMigratable",
            description="whether it can be live-migrated",
            priority=1,
        ),
        condition("Paused", "Paused", description="whether it is paused", priority=1),
    ),
    keep=admission.keep_status,
    default_create=defaults.default_new_instance,
    validate=admission.validate_instance,
    webhook=Webhook(
        create="virtualmachineinstances-create-validator.kubevirt.io",
        update="virtualmachineinstances-update-validator.kubevirt.io",
    ),
)

_REPLICA_SET_WEBHOOK = "virtualmachinereplicaset-validator.kubevirt.io"

REPLICA_SET = Kind(
    group=GROUP,
    plural="virtualmachineinstancereplicasets",
    short=("vmirs", "vmirss"),
    categories=("all",),
    versions=(
        Version(name="v1"),
        *v1alpha2.versions(v1alpha2.read_replica_set, v1alpha2.spell_replica_set),
    ),
    view=VirtualMachineInstanceReplicaSet,
    scale=Scale(),
    columns=(
        number("Desired", "spec", "replicas", description="desired machines"),
        count_or_blank("Current", "status", "replicas", description="observed machines"),
        count_or_blank("Ready", "status", "readyReplicas", description="those that are ready"),
        age(),
    ),
    validate=admission.validate_replica_set,
    webhook=Webhook(create=_REPLICA_SET_WEBHOOK, update=_REPLICA_SET_WEBHOOK),
)

_VM_WEBHOOK = "virtualmachine-validator.kubevirt.io"

VIRTUAL_MACHINE = Kind(
    group=GROUP,
    plural="virtualmachines",
    short=("vm", "vms"),
    categories=("all",),
    versions=(Version(name="v1"), Version(name="v1alpha3", deprecated=True)),
    view=VirtualMachine,
    columns=(
        age(),
        field("Status", "status", "printableStatus", description="status in one word"),
        condition("Ready", "Ready", description="whether its machine is ready"),
    ),
    keep=vm_defaults.keep_identity,
    default_create=vm_defaults.default_new_vm,
    validate=vm_validation.validate_vm,
    webhook=Webhook(create=_VM_WEBHOOK, update=_VM_WEBHOOK),
)

_POOL_WEBHOOK = "virtualmachinepool-validator.kubevirt.io"

POOL = Kind(
    group=pool.GROUP,
    plural="virtualmachinepools",
    short=("vmpool", "vmpools"),
    categories=("all",),
    versions=(
        Version(name="v1beta1"),
        Version(name="v1alpha1", read=pool_validation.read_old_fields),
    ),
    view=pool.VirtualMachinePool,
    scale=Scale(),
    columns=(
        number("Desired", "spec", "replicas", description="desired VirtualMachines"),
        count_or_blank("Current", "status", "replicas", description="observed VirtualMachines"),
        count_or_blank("Ready", "status", "readyReplicas", description="those that are ready"),
        age(),
    ),
    validate=pool_validation.validate_pool,
    webhook=Webhook(create=_POOL_WEBHOOK, update=_POOL_WEBHOOK),
)

KINDS = (VIRTUAL_MACHINE_INSTANCE, REPLICA_SET, VIRTUAL_MACHINE, POOL)
