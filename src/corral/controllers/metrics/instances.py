"""What is told of each VirtualMachineInstance (KubeVirt's vmistats_collector.go)."""

from collections.abc import Iterable

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.metrics import labels
from corral.metrics import Family, Source, gauge
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid

_INSTANCETYPES = ("instancetype", "cluster-instancetype")
_PREFERENCES = ("preference", "cluster-preference")


def source(context: ControllerContext) -> Source:
    """The source of what the caches hold of instances, at the moment of the scrape."""
    machines = context.informers.of(VirtualMachineInstance)
    pods = context.informers.of(Pod)

    async def tell() -> Iterable[Family]:
        running = {
            controller_uid(pod): (pod.metadata and pod.metadata.name) or ""
            for pod in pods.items()
            if pod.status is not None and pod.status.phase == "Running"
        }
        return families(machines.items(), running)

    return tell


def families(
    machines: Iterable[VirtualMachineInstance], pods: dict[str, str]
) -> tuple[Family, ...]:
    """The families of some instances; ``pods``: the running pod of each, by the instance's uid."""
    info = gauge("kubevirt_vmi_info", "Information about VirtualMachineInstances.")
    stuck = gauge(
        "kubevirt_vmi_non_evictable", "Whether it is to be migrated off its node, but cannot be."
    )
    addresses = gauge("kubevirt_vmi_status_addresses", "Addresses of an instance.")
    cards = gauge("kubevirt_vmi_vnic_info", "Network cards of an instance.")
    for vmi in machines:
        name = {"namespace": vmi.metadata.namespace, "name": vmi.metadata.name}
        placed = {"node": vmi.status.node_name, **name}
        evictable = _evictable(vmi)
        pod = pods.get(vmi.metadata.uid, "")
        info.add(1, placed | _about(vmi) | {"evictable": _word(evictable), "vmi_pod": pod})
        stuck.add(not evictable, placed)
        for one in vmi.status.interfaces:
            if one.ip_address or one.name or one.interface_name:
                addresses.add(
                    1,
                    placed
                    | {
                        "vnic_name": one.name,
                        "interface_name": one.interface_name,
                        "address": one.ip_address,
                        "type": "ExternalInterface" if one.ip_address else "SystemInterface",
                    },
                )
        for interface in vmi.spec.domain.devices.interfaces:
            if (card := labels.card(interface, vmi.spec.networks)) is not None:
                cards.add(1, name | card)
    return info, stuck, addresses, cards


def _about(vmi: VirtualMachineInstance) -> dict[str, str]:
    annotations = vmi.metadata.annotations
    guest = vmi.status.guest_os_info
    return labels.system(annotations) | {
        "phase": vmi.status.phase.lower(),
        "instance_type": _made_from(vmi, _INSTANCETYPES),
        "preference": _made_from(vmi, _PREFERENCES),
        "guest_os_kernel_release": guest.kernel_release if guest else "",
        "guest_os_machine": vmi.status.machine.type if vmi.status.machine else "",
        "guest_os_arch": guest.machine if guest else "",
        "guest_os_name": guest.name if guest else "",
        "guest_os_version_id": guest.version_id if guest else "",
        "outdated": _word("kubevirt.io/outdatedLauncherImage" in vmi.metadata.labels),
    }


def _made_from(vmi: VirtualMachineInstance, kinds: Iterable[str]) -> str:
    known = (vmi.metadata.annotations.get(f"kubevirt.io/{kind}-name", "") for kind in kinds)
    return next((name for name in known if name), "")


def _evictable(vmi: VirtualMachineInstance) -> bool:
    """Whether nothing is in the way of its eviction, as far as is known."""
    if vmi.spec.eviction_strategy != "LiveMigrate":
        return True
    return any(
        one.type == "LiveMigratable" and one.status == "True" for one in vmi.status.conditions
    )


def _word(yes: bool) -> str:  # noqa: FBT001 - it is the value of a label
    return "true" if yes else "false"
