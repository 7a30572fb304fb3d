"""VirtualMachinePools as targets of warm pools: the VMIs of their members.  Pure.

A member has a number and disks of its own, so that a spare cannot become one; it may start from a
checkpoint of a VMI that is made as its own would be.
"""

from typing import Any, Final

import msgspec

from corral.api.kind import at
from corral.api.kinds.kubevirt.pool import NameGeneration, VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import ReplicaSetTemplate
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.kubevirt.vm_defaults import IDENTITY, default_new_vm
from corral.api.kinds.vmi.forkable import obstacles
from corral.api.kinds.vmi.live_update import LiveUpdateConfiguration, add_room
from corral.api.kinds.vmi.vmi import Spec

_TEMPLATE: Final = "spec.virtualMachineTemplate.spec"
_NUMBERED: Final = (
    ("append_index_to_config_map_refs", "appendIndexToConfigMapRefs", ("config_map",)),
    (
        "append_index_to_secret_refs",
        "appendIndexToSecretRefs",
        ("secret", "cloud_init_no_cloud", "cloud_init_config_drive"),
    ),
)
"""Fields of nameGeneration, and the sources of volumes that they may give numbers to."""
_NAMES_SECRETS: Final = ("secret_ref", "network_data_secret_ref")


def member_template(
    pool: VirtualMachinePool, live_updates: LiveUpdateConfiguration | None
) -> ReplicaSetTemplate:
    """Return the template of the VMIs that the VirtualMachines of a pool make.

    It has what the VM controller adds, such as room for live updates, and no identity.
    """
    document = {"spec": msgspec.to_builtins(pool.spec.virtual_machine_template.spec)}
    template = document["spec"]["template"]
    own = at(template, "spec", "domain", "firmware") or {}
    given = [field for field in IDENTITY if own.get(field)]
    default_new_vm(document)
    for field in IDENTITY:
        if field not in given:
            template["spec"]["domain"]["firmware"].pop(field)
    template["metadata"].pop("name", None)
    template["metadata"].pop("generateName", None)
    if live_updates is not None:
        add_room(template, live_updates)
    return msgspec.convert(template, ReplicaSetTemplate)


def obstacle(pool: VirtualMachinePool) -> str:
    """Return why members of a pool cannot start from a checkpoint; empty if they can."""
    spec = pool.spec.virtual_machine_template.spec
    for field in ("instancetype", "preference"):
        if getattr(spec, field) is not None:
            return (
                f"{_TEMPLATE}.{field}: members get processors, memory or devices by it that the "
                "template does not name; write them into the template"
            )
    if why := next(obstacles(spec.template.spec, f"{_TEMPLATE}.template.spec"), ""):
        return why
    if _has_default_interface(spec.template.spec):
        return (
            f"{_TEMPLATE}.template.spec.domain.devices.interfaces: members get one of the binding "
            "bridge by default, and forks work with masquerade only; write one with that"
        )
    return _numbered_volume(pool)


def _has_default_interface(spec: Spec) -> bool:
    devices = spec.domain.devices
    has_none = not (spec.networks or devices.interfaces)
    return has_none and devices.autoattach_pod_interface is not False


def is_made_from(vm: VirtualMachine, pool: VirtualMachinePool) -> bool:
    """Report whether the VMI of a VirtualMachine is made from the present template of its pool.

    That a VirtualMachine has defaults of its own makes no difference, a changed value does.
    """
    template = pool.spec.virtual_machine_template.spec.template
    before, now = msgspec.to_builtins(template), msgspec.to_builtins(vm.spec.template)
    for each in (before, now):
        metadata = each.setdefault("metadata", {})
        metadata.pop("labels", None)  # as in the hash of a template
        metadata.setdefault("annotations", {})
        each["spec"]["domain"].setdefault("firmware", {})
    is_plain = vm.spec.instancetype is None and vm.spec.preference is None
    return is_plain and _contains(now, before)


def _contains(now: Any, before: Any) -> bool:
    """Report whether all of ``before`` is in ``now``, which may have more fields, but no lists."""
    if not (isinstance(now, dict) and isinstance(before, dict)):
        return bool(now == before)
    added = [value for field, value in now.items() if field not in before]
    return not any(isinstance(value, list) for value in added) and all(
        field in now and _contains(now[field], value) for field, value in before.items()
    )


def _numbered_volume(pool: VirtualMachinePool) -> str:
    """Return why a volume is another one in each member; empty if all members have the same."""
    switches = pool.spec.name_generation or NameGeneration()
    for index, volume in enumerate(pool.spec.virtual_machine_template.spec.template.spec.volumes):
        for switch, field, sources in _NUMBERED:
            present = [each for name in sources if (each := getattr(volume, name)) is not None]
            if getattr(switches, switch) and any(map(_names_an_object, present)):
                return (
                    f'{_TEMPLATE}.template.spec.volumes[{index}]: volume "{volume.name}" is '
                    f"another one in each member (spec.nameGeneration.{field})"
                )
    return ""


def _names_an_object(source: Any) -> bool:
    """Report whether a volume's source names a ConfigMap or Secret, which may get a number."""
    secrets = [getattr(source, each) for each in _NAMES_SECRETS if hasattr(source, each)]
    return any(secrets) if secrets else True
