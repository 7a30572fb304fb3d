"""The status of a VMI, from its machine's facts, as far as its node owns it.  Pure.

Phases up to Scheduled and the condition Ready belong to the VMI controller (KubeVirt's
virt-controller); Running, the final phases, and the guest's state belong here (virt-handler).
Ready is written together with a new phase: the controller would write the same a moment later.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.conditions import get_condition, remove_condition, set_condition
from corral.api.kinds.core.node_pressure import EVICTED
from corral.api.kinds.corral.spare_state import PAUSED_AS_SPARE
from corral.api.kinds.vmi.addresses import POD_INTERFACE, USER_NETWORK, guest_address, mac_of
from corral.api.kinds.vmi.derived import guest_memory, processors
from corral.api.kinds.vmi.fork_state import FORKED, RENEWED
from corral.api.kinds.vmi.live_migration import live_migratable, migration_method
from corral.api.kinds.vmi.live_update import (
    MEMORY_CHANGE,
    VCPU_CHANGE,
    boot_memory,
    current_memory,
    has_condition,
    max_memory_bytes,
    present_processors,
    requested_guest,
)
from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.user_data import APPLIED
from corral.api.kinds.vmi.vmi import FINAL_PHASES, UNKNOWN, VirtualMachineInstance
from corral.api.object import Condition, Document
from corral.api.quantity import NANO, Amount, Form
from corral.node.hypervisor import GuestInterface
from corral.node.state.facts import (
    OOM_KILLED,
    PAUSED_BY_IO_ERROR,
    PAUSED_BY_USER,
    Facts,
    State,
)
from corral.node.status.volume_status import volume_status
from corral.reconcile.readiness import ready_condition

IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
)
"""Reasons that the VMI controller copies from the pod to Synchronized."""
_MAX_GUEST_INTERFACES = 16
"""Limit of reported interfaces that are not in the spec: a guest may create any number."""
_RESIZE_FAILED = "HotPlugFailed"
_PAUSED = {
    PAUSED_BY_USER: "VMI was paused by user",
    PAUSED_BY_IO_ERROR: "VMI was paused, I/O error",
    PAUSED_AS_SPARE: "VMI is a spare, and paused until it is handed out",
}
"""Messages of the condition Paused, by its reason."""
_OURS = frozenset({"Scheduled", "Running", UNKNOWN})
_CONTROLLERS = IMAGE_REASONS | {"FailedCreate", "FailedPvcNotFound"}


def instance_status(
    facts: Facts,
    vmi: VirtualMachineInstance,
    pod: Pod,
    now: str,
    *,
    alone: bool = False,
    launcher: str = "",
    machine_type: str = "",
) -> Document:
    """Return the changes of the VMI's status; ``now`` is their time.

    ``pod`` is the machine's, and shows the facts already, except the end.  Until the VMI is
    Scheduled it belongs to the controller, so only trouble and the end are written.  While the
    guest runs on the other side of a migration, it is that side's.  ``alone``: no other node is on
    this host; ``launcher``, ``machine_type``: what it was started in.
    """
    is_ours = vmi.status.phase in _OURS or facts.ended or facts.trouble is not None
    if facts.elsewhere or not is_ours:
        return {}
    changes: Document = {}
    if (phase := _phase(facts, vmi.status.phase)) != vmi.status.phase:
        changes |= {"phase": phase, **_phase_history(vmi, phase, now), **_reason(facts)}
        if phase == "Running":
            changes |= _running_facts(vmi, machine_type)
    old = msgspec.to_builtins(vmi.status.conditions)
    readiness = ready_condition(pod, phase) if changes else None
    if (conditions := _conditions(facts, vmi, old, readiness, now, alone=alone)) != old:
        changes["conditions"] = conditions
    if facts.state is State.RUNNING:
        changes |= _of_running(facts, vmi, launcher)
    system = facts.guest_info.os if facts.guest_info is not None else {}
    if system and system != msgspec.to_builtins(vmi.status.guest_os_info):
        changes["guestOSInfo"] = dict(system)
    if facts.frozen not in (None, bool(vmi.status.fs_freeze_status)):
        changes["fsFreezeStatus"] = "frozen" if facts.frozen else None
    return changes


def _of_running(facts: Facts, vmi: VirtualMachineInstance, launcher: str) -> Document:
    """Return the changes that are written while the guest runs."""
    changes: Document = {}
    if launcher and launcher != vmi.status.launcher_container_image_version:
        changes["launcherContainerImageVersion"] = launcher
    interfaces = _interfaces(vmi, facts)
    if interfaces != msgspec.to_builtins(vmi.status.interfaces):
        changes["interfaces"] = interfaces
    changes |= _size(facts, vmi)
    volumes = volume_status(vmi, facts)
    if volumes != msgspec.to_builtins(vmi.status.volume_status):
        changes["volumeStatus"] = volumes
    return changes


def _size(facts: Facts, vmi: VirtualMachineInstance) -> Document:
    """Return the changes of a guest into which vCPUs and memory can be plugged."""
    size, status = facts.size, vmi.status
    if size is None:
        return {}
    changes: Document = {}
    _, cores, threads = layout = present_processors(vmi)
    sockets = size.processors // (cores * threads)
    if sockets != layout.sockets:
        changes["currentCPUTopology"] = layout._replace(sockets=sockets)._asdict()
    present = (size.boot_bytes, size.memory_bytes)
    known = boot_memory(vmi).rounded_up(), current_memory(vmi).rounded_up()
    if max_memory_bytes(vmi.spec.domain) and present != known and status.memory is not None:
        boot, current = (str(Amount(each * NANO, Form.BINARY)) for each in present)
        changes["memory"] = {"guestAtBoot": boot, "guestCurrent": current}
    return changes


def _of_resizing(
    facts: Facts, vmi: VirtualMachineInstance
) -> dict[str, tuple[str, str, str] | None]:
    """Return the conditions of vCPUs and memory that are being plugged in.

    The VMI controller sets them; they go (None) once the guest has what it is to have.
    """
    size, domain = facts.size, vmi.spec.domain
    if size is None:
        return {}
    done = {
        VCPU_CHANGE: size.processors >= processors(domain).total,
        MEMORY_CHANGE: size.memory_bytes
        == requested_guest(vmi).rounded_up()
        == guest_memory(domain).rounded_up(),
    }
    failure = facts.resize_failure
    return {
        name: None if is_done else ("True", _RESIZE_FAILED if failure else "", failure)
        for name, is_done in done.items()
        if has_condition(vmi, name)
    }


def _reason(facts: Facts) -> Document:
    if facts.evicted:
        return {"reason": EVICTED}
    return {"reason": OOM_KILLED} if facts.out_of_memory else {}


def _phase(facts: Facts, phase: str) -> str:
    """Return the phase: Running after Scheduled only, since until then it is the controller's.

    Unknown while QEMU hangs: the state of the guest is unknown (KubeVirt's types.go, Unknown).
    """
    if phase in FINAL_PHASES:
        return phase
    if facts.ended and facts.outcome is not None:
        return facts.outcome.value
    if facts.state is State.RUNNING and phase in _OURS:
        return UNKNOWN if facts.silent else "Running"
    return phase


def _phase_history(vmi: VirtualMachineInstance, phase: str, now: str) -> Document:
    history: list[Any] = msgspec.to_builtins(vmi.status.phase_transition_timestamps)
    entry = {"phase": phase, "phaseTransitionTimestamp": now}
    return {"phaseTransitionTimestamps": [*history, entry]}


def _running_facts(vmi: VirtualMachineInstance, machine_type: str) -> Document:
    domain = vmi.spec.domain
    facts: Document = {}
    if vmi.status.phase != UNKNOWN:  # else it ran before, and may have grown since
        facts["currentCPUTopology"] = processors(domain)._asdict()
        amounts = ("guestAtBoot", "guestCurrent", "guestRequested")
        facts["memory"] = dict.fromkeys(amounts, str(guest_memory(domain)))
    if name := machine_type or (domain.machine.type if domain.machine is not None else ""):
        facts["machine"] = {"type": name}
    facts["migrationMethod"] = migration_method(vmi)
    return facts


def _conditions(
    facts: Facts,
    vmi: VirtualMachineInstance,
    conditions: Sequence[Document],
    readiness: Condition | None,
    now: str,
    *,
    alone: bool,
) -> list[Document]:
    """Return the conditions: the node's only while they hold, others unchanged.

    ``readiness``: the new condition Ready, where it changes.
    """
    message = _PAUSED.get(facts.paused, "")
    desired = {
        "AgentConnected": ("True", "", "") if facts.agent_connected else None,
        "Paused": ("True", facts.paused, message) if facts.paused else None,
    }
    if facts.state is State.RUNNING:
        migratable = live_migratable(vmi, alone=alone)
        desired[migratable.type] = (migratable.status, migratable.reason, migratable.message)
    desired |= _of_resizing(facts, vmi)
    if facts.credentials is not None:
        status = "False" if facts.credentials else "True"
        desired["AccessCredentialsSynchronized"] = (status, "", facts.credentials)
    if (fork := facts.fork) is not None:
        status = "True" if fork.reason == RENEWED else "False"
        desired[FORKED] = (status, fork.reason, fork.message)
    if (given := facts.user_data) is not None:
        desired[APPLIED] = ("False" if given.reason else "True", given.reason, given.message)
    synchronized = get_condition(conditions, "Synchronized")
    if facts.trouble is not None and facts.trouble.reason not in IMAGE_REASONS:
        desired["Synchronized"] = ("False", facts.trouble.reason, facts.trouble.message)
    elif synchronized is not None and synchronized.get("reason") not in _CONTROLLERS:
        desired["Synchronized"] = None
    if readiness is not None:
        desired[readiness.type] = (readiness.status, readiness.reason, readiness.message)
    result = list(conditions)
    for name, value in desired.items():
        if value is None:
            result = remove_condition(result, name)
        else:
            status, reason, text = value
            result = set_condition(result, name, status, reason=reason, message=text, now=now)
    return result


def _interfaces(vmi: VirtualMachineInstance, facts: Facts) -> list[Document]:
    """Return every interface of the VMI, then those that only the guest reports (a bridge, say)."""
    guest_info = facts.guest_info
    reported = {one.mac: one for one in guest_info.interfaces} if guest_info else {}
    ours = [
        _interface(vmi, one, facts.addresses, reported.pop(mac_of(vmi, one), None))
        for one in vmi.spec.domain.devices.interfaces
        if one.state != "absent"
    ]
    others = list(reported.values())[:_MAX_GUEST_INTERFACES]
    return ours + [_guests_own(one) for one in others]


def _interface(
    vmi: VirtualMachineInstance,
    interface: Interface,
    pod: Sequence[str],
    reported: GuestInterface | None,
) -> Document:
    """Return the status of an interface: with the pod's addresses if masqueraded.

    A guest that has the pod's address itself is believed when it reports another; before it reports
    any, and behind QEMU's user network, the address is the one of its DHCP lease.
    """
    addresses = list(pod)
    if reported is not None and reported.addresses and (not pod or interface.masquerade is None):
        addresses = list(reported.addresses)
    if not addresses:
        addresses = [guest_address(_range(vmi, interface.name))]
    status: Document = {
        "name": interface.name,
        "mac": mac_of(vmi, interface),
        "ipAddress": addresses[0],
        "ipAddresses": addresses,
        "infoSource": "domain, guest-agent" if reported is not None else "domain",
        "queueCount": 1,
        "linkState": interface.state or "up",
    }
    if pod:
        status["podInterfaceName"] = POD_INTERFACE
    if reported is not None:
        status["interfaceName"] = reported.name
    return status


def _guests_own(reported: GuestInterface) -> Document:
    """Return the status of an interface that only the guest reports."""
    status: Document = {
        "mac": reported.mac,
        "interfaceName": reported.name,
        "infoSource": "guest-agent",
    }
    if reported.addresses:
        status |= {"ipAddress": reported.addresses[0], "ipAddresses": list(reported.addresses)}
    return status


def _range(vmi: VirtualMachineInstance, name: str) -> str:
    """Return the network's private CIDR."""
    for network in vmi.spec.networks:
        if network.name == name and network.pod is not None and network.pod.vm_network_cidr:
            return network.pod.vm_network_cidr
    return USER_NETWORK
