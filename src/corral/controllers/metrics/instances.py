"""Metrics of each VMI (KubeVirt's vmistats_collector.go)."""

from collections.abc import Iterable

from lightkube.models.core_v1 import Pod

from corral.api.kinds.kubevirt.installation import KEY, KubeVirt, eviction_strategy
from corral.api.kinds.vmi.launcher import OUTDATED_LABEL
from corral.api.kinds.vmi.live_migration import is_live_migratable
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.metrics import labels
from corral.metrics import Family, Source, gauge
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid

_INSTANCETYPES = ("instancetype", "cluster-instancetype")
_PREFERENCES = ("preference", "cluster-preference")


def source(context: ControllerContext) -> Source:
    """Return the source of metrics of the cached VMIs."""
    vmis = context.informers.of(VirtualMachineInstance)
    pods = context.informers.of(Pod)
    installations = context.informers.of(KubeVirt)

    async def collect() -> Iterable[Family]:
        running = {
            controller_uid(pod): (pod.metadata and pod.metadata.name) or ""
            for pod in pods.items()
            if pod.status is not None and pod.status.phase == "Running"
        }
        return families(vmis.items(), running, eviction_strategy(installations.get(KEY)))

    return collect


def families(
    vmis: Iterable[VirtualMachineInstance], pods: dict[str, str], strategy: str | None = None
) -> tuple[Family, ...]:
    """Return the metric families of VMIs; ``pods``: their running pods by the VMI's uid.

    ``strategy``: the eviction strategy of VMIs that have none.
    """
    info = gauge("kubevirt_vmi_info", "Information about VirtualMachineInstances.")
    non_evictable = gauge(
        "kubevirt_vmi_non_evictable",
        "Whether an eviction must migrate the VMI, but it cannot be migrated.",
    )
    addresses = gauge("kubevirt_vmi_status_addresses", "Addresses of an instance.")
    vnics = gauge("kubevirt_vmi_vnic_info", "Network cards of an instance.")
    outdated = gauge("kubevirt_vmi_number_of_outdated", "VMIs that run in an outdated launcher.")
    outdated_count = 0
    for vmi in vmis:
        outdated_count += OUTDATED_LABEL in vmi.metadata.labels
        name = {"namespace": vmi.metadata.namespace, "name": vmi.metadata.name}
        node_labels = {"node": vmi.status.node_name, **name}
        evictable = _evictable(vmi, strategy)
        pod = pods.get(vmi.metadata.uid, "")
        info.add(
            1, node_labels | _info_labels(vmi) | {"evictable": _boolean(evictable), "vmi_pod": pod}
        )
        non_evictable.add(not evictable, node_labels)
        for one in vmi.status.interfaces:
            if one.ip_address or one.name or one.interface_name:
                addresses.add(
                    1,
                    node_labels
                    | {
                        "vnic_name": one.name,
                        "interface_name": one.interface_name,
                        "address": one.ip_address,
                        "type": "ExternalInterface" if one.ip_address else "SystemInterface",
                    },
                )
        for interface in vmi.spec.domain.devices.interfaces:
            if (vnic := labels.vnic(interface, vmi.spec.networks)) is not None:
                vnics.add(1, name | vnic)
    outdated.add(outdated_count)
    return info, non_evictable, addresses, vnics, outdated


def _info_labels(vmi: VirtualMachineInstance) -> dict[str, str]:
    annotations = vmi.metadata.annotations
    guest = vmi.status.guest_os_info
    return labels.system(annotations) | {
        "phase": vmi.status.phase.lower(),
        "instance_type": _first_annotation(vmi, _INSTANCETYPES),
        "preference": _first_annotation(vmi, _PREFERENCES),
        "guest_os_kernel_release": guest.kernel_release if guest else "",
        "guest_os_machine": vmi.status.machine.type if vmi.status.machine else "",
        "guest_os_arch": guest.machine if guest else "",
        "guest_os_name": guest.name if guest else "",
        "guest_os_version_id": guest.version_id if guest else "",
        "outdated": _boolean(OUTDATED_LABEL in vmi.metadata.labels),
    }


def _first_annotation(vmi: VirtualMachineInstance, kinds: Iterable[str]) -> str:
    names = (vmi.metadata.annotations.get(f"kubevirt.io/{kind}-name", "") for kind in kinds)
    return next((name for name in names if name), "")


def _evictable(vmi: VirtualMachineInstance, default: str | None) -> bool:
    """Report whether nothing known prevents the eviction of a VMI."""
    strategy = vmi.spec.eviction_strategy or default
    return strategy != "LiveMigrate" or is_live_migratable(vmi)


def _boolean(yes: bool) -> str:  # noqa: FBT001 - it is the value of a label
    return "true" if yes else "false"
