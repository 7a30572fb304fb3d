"""Admission of pods by the node: it runs the pods of VMIs, and no others.  Pure."""

from collections.abc import Mapping

from lightkube.models.core_v1 import Pod

from corral.api.kinds.core.node_pressure import EVICTED
from corral.api.kinds.priority_class import CRITICAL_PRIORITY
from corral.api.kinds.vmi.derived import MIGRATION_UID, pod_name, target_pod_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.state.facts import Trouble
from corral.reconcile.objects import key_of, labels_of, owners_of

NOT_A_MACHINE = "NotAVirtualMachine"
NOT_ITS_OWN = "NotTheInstancesOwnPod"

_KIND = VirtualMachineInstance.kind


def objection(pod: Pod) -> Trouble | None:
    """Return why a pod waits for ever: it has no machine; None for a VMI's pod."""
    if any(owner.controller and owner.kind == _KIND for owner in owners_of(pod)):
        return None
    return Trouble(
        reason=NOT_A_MACHINE,
        message="this node runs no containers, only the virt-launcher pods of virtual machines:"
        " create a VirtualMachineInstance, and delete this pod",
    )


def rejection(pod: Pod, vmi: VirtualMachineInstance, *, runs: bool) -> Trouble | None:
    """Return why a pod cannot run its VMI; None for the VMI's own pod.

    A second machine of a VMI would share the first one's guest.  ``runs``: this node already has
    the VMI's machine.
    """
    migration = labels_of(pod).get(MIGRATION_UID, "")
    name = target_pod_name(vmi, migration) if migration else pod_name(vmi)
    own = Key(vmi.metadata.namespace, name)
    if key_of(pod) == own and not runs:
        return None
    return Trouble(
        reason=NOT_ITS_OWN,
        message=f"the pod of VirtualMachineInstance {vmi.metadata.name} is {own.name}:"
        " delete this one",
    )


def no_room(pod: Pod, pressures: Mapping[str, bool]) -> Trouble | None:
    """Return why a pod that was bound before a pressure appeared is rejected; None if it is not.

    A kubelet's admission: critical pods are admitted.
    """
    under = [name for name, present in pressures.items() if present]
    if not under or ((pod.spec and pod.spec.priority) or 0) >= CRITICAL_PRIORITY:
        return None
    message = f"The node had condition: [{', '.join(under)}]. "
    return Trouble(reason=EVICTED, message=message)
