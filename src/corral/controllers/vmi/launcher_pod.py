"""The launcher pod of a VMI: scheduling, and resource requests and limits. Pure.

Labels, annotations and names are KubeVirt's, since Services, autoscalers and users select by them.
Requests differ: KubeVirt's pod runs libvirt and three more daemons beside QEMU, a pod of corral
runs QEMU alone.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import msgspec
from lightkube.models.core_v1 import Pod

from corral import __version__
from corral.api import grace_period
from corral.api.images import pull_policy
from corral.api.kinds.core.machine_nodes import ANYWHERE, Placement
from corral.api.kinds.corral.warm_pool import SPARE_LABELS, WARM_POOL_LABEL
from corral.api.kinds.kubevirt.installation import CPU_RATIO
from corral.api.kinds.kubevirt.migration import EVICT_ONLY
from corral.api.kinds.vmi.derived import (
    COMPUTE,
    CONSOLE_LOG,
    INSTANCE_ID,
    UNPAUSED,
    grace_seconds,
    guest_memory,
    host_name,
    instance_id,
    pod_name,
    processors,
)
from corral.api.kinds.vmi.domain import Resources
from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.referenced_objects import CONFIG_MAP, SECRET, references
from corral.api.kinds.vmi.saved_memory import START_ON, starts_from
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import ContainerDisk
from corral.api.object import Document, Quantity
from corral.api.quantity import NANO, ZERO, Amount, Form, amount, parse
from corral.controllers.vmi.auto_limits import NO_LIMITS, AutoLimits
from corral.controllers.vmi.required_claims import NONE, Claims, pod_mounts, pod_volumes
from corral.reconcile.objects import labels_of, owner_reference

CREATED_BY = "kubevirt.io/created-by"
IMAGE = f"corral/launcher:{__version__}"
"""Image of the containers; the node runs QEMU instead of pulling it."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

_LAUNCHER_GRACE_SECONDS = 30
"""Grace period of the pod beyond that of its guest."""

_MEBIBYTE = 2**20
_QEMU_BYTES = 64 * _MEBIBYTE
"""QEMU's own code, heap, devices and translated code: 35 to 50 MiB measured beside the guest's
memory of small VMs (KubeVirt's launcher: 240 MiB)."""
_VCPU_BYTES = 8 * _MEBIBYTE
"""Stack and translation state of each vCPU after the first (KubeVirt: the same for each)."""
_PAGE_TABLE_SHARE = 512
"""Page tables take 1/512 of the guest's memory (KubeVirt: the same)."""

_DISK_REQUESTS = {"cpu": "1m", "memory": "1M"}
_DISK_LIMITS = {"cpu": "10m", "memory": "40M"}
_CONSOLE_REQUESTS = {"cpu": "5m", "memory": "1M"}
"""As KubeVirt's, so that autoscalers see the same utilization, but for the memory (35M there): here
QEMU itself writes the log."""
_CONSOLE_LIMITS = {"cpu": "15m", "memory": "60M"}

_OBSERVED = frozenset(
    {
        "kubevirt.io/latest-observed-api-version",
        "kubevirt.io/storage-observed-api-version",
    }
)


def pod_for(
    vmi: VirtualMachineInstance,
    claims: Claims = NONE,
    *,
    cpu_ratio: int = CPU_RATIO,
    auto: AutoLimits = NO_LIMITS,
    placement: Placement = ANYWHERE,
) -> Document:
    """Return the launcher pod of a VMI (KubeVirt's template.go)."""
    spec = vmi.spec
    disks = list(_container_disks(vmi))
    account = _account(vmi)
    pod_spec: Document = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": min(
            grace_seconds(spec) + _LAUNCHER_GRACE_SECONDS, grace_period.LONGEST_SECONDS
        ),
        "readinessGates": [{"conditionType": UNPAUSED}],
        "enableServiceLinks": False,
        "automountServiceAccountToken": account is not None,
        "hostname": host_name(vmi),
        "subdomain": spec.subdomain,
        "nodeSelector": {**spec.node_selector, **placement.node_selector},
        "affinity": _plain(spec.affinity),
        "tolerations": [*_plain(spec.tolerations), *placement.tolerations],
        "topologySpreadConstraints": _plain(spec.topology_spread_constraints),
        "schedulerName": spec.scheduler_name,
        "priorityClassName": spec.priority_class_name,
        "dnsPolicy": spec.dns_policy,
        "dnsConfig": _plain(spec.dns_config),
        "serviceAccountName": account or spec.service_account_name,
        "imagePullSecrets": _pull_secrets(disks),
        "initContainers": list(_sidecars(vmi)),
        "containers": [
            {
                "name": COMPUTE,
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "resources": compute_resources(vmi, cpu_ratio=cpu_ratio, auto=auto),
                **_ports(vmi),
                **_probes(vmi),
                **pod_mounts(claims),
            },
            *(_disk_container(vmi, name, disk) for name, disk in disks),
        ],
        "volumes": pod_volumes(spec),
    }
    if placement.names_references:
        pod_spec["volumes"] += _reference_volumes(spec)
    if placement.security_context:
        for container in (*pod_spec["initContainers"], *pod_spec["containers"]):
            container["securityContext"] = placement.security_context
    return {
        "metadata": {
            "name": pod_name(vmi),
            "namespace": vmi.metadata.namespace,
            "labels": _labels(vmi),
            "annotations": _annotations(vmi),
            "ownerReferences": [owner_reference(vmi)],
        },
        "spec": {
            field: value for field, value in pod_spec.items() if value not in (None, "", [], {})
        },
    }


def _reference_volumes(spec: Spec) -> Iterator[Document]:
    """Yield a volume for each Secret and ConfigMap that a VMI names; the machine reads them."""
    taken = {volume.name for volume in spec.volumes}
    names = (name for number in count() if (name := f"reference-{number}") not in taken)
    for kind, named in sorted(references(spec)):
        if kind == SECRET:
            yield {"name": next(names), "secret": {"secretName": named, "optional": True}}
        elif kind == CONFIG_MAP:
            yield {"name": next(names), "configMap": {"name": named, "optional": True}}


def _account(vmi: VirtualMachineInstance) -> str | None:
    """Return the ServiceAccount that a volume shows to the guest."""
    accounts = (each.service_account for each in vmi.spec.volumes)
    return next((one.service_account_name for one in accounts if one is not None), None)


def _ports(vmi: VirtualMachineInstance) -> Document:
    """Return the declared ports of the interfaces: Services and policies look them up by name."""
    ports = [
        {
            "containerPort": port.port,
            "protocol": port.protocol or "TCP",
            **({"name": port.name} if port.name else {}),
        }
        for interface in vmi.spec.domain.devices.interfaces
        for port in interface.ports
    ]
    return {"ports": ports} if ports else {}


def _probes(vmi: VirtualMachineInstance) -> Document:
    """Return the probes of the VMI. For display only: the node reads those of the VMI."""
    probes = {
        "readinessProbe": vmi.spec.readiness_probe,
        "livenessProbe": vmi.spec.liveness_probe,
    }
    return {name: _probe(probe) for name, probe in probes.items() if probe is not None}


def _probe(probe: Probe) -> Document:
    document: Document = msgspec.to_builtins(probe)
    if document.pop("guestAgentPing", None) is not None:  # a pod has no such probe
        document["exec"] = {"command": ["virt-probe", "--guestAgentPing"]}
    return document


def compute_resources(
    vmi: VirtualMachineInstance, *, cpu_ratio: int = CPU_RATIO, auto: AutoLimits = NO_LIMITS
) -> dict[str, dict[str, Quantity]]:
    """Return the resources of a VMI (KubeVirt's renderresources.go, other constants)."""
    resources = vmi.spec.domain.resources or Resources()
    requests, limits = dict(resources.requests), dict(resources.limits)
    if "cpu" not in requests:
        share = -(-processors(vmi.spec.domain).total * 1000 // max(cpu_ratio, 1))
        requests["cpu"] = limits.get("cpu", f"{share}m")
    extra = overhead(vmi)
    if resources.overcommit_guest_overhead:
        requests["memory"] = str(requested_memory(vmi))
    else:
        requests["memory"] = str(requested_memory(vmi) + extra)
    if "memory" in limits:
        limits["memory"] = str(parse(limits["memory"]) + extra)
    elif auto.memory_ratio:
        requested = parse(requests["memory"])
        limit = int(requested.rounded_up() * auto.memory_ratio)
        limits["memory"] = str(Amount(limit * NANO, requested.form))
    if auto.cpu:
        limits.setdefault("cpu", str(processors(vmi.spec.domain).total))
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def requested_memory(vmi: VirtualMachineInstance) -> Amount:
    """Return the memory for the guest: request, else limit, else the guest's memory."""
    domain = vmi.spec.domain
    resources = domain.resources or Resources()
    memory = (amount(values.get("memory")) for values in (resources.requests, resources.limits))
    return next((one for one in memory if one > ZERO), guest_memory(domain))


def overhead(vmi: VirtualMachineInstance) -> Amount:
    """Return the memory that QEMU needs beside the guest's."""
    guest_bytes = requested_memory(vmi).rounded_up()
    share = guest_bytes // _PAGE_TABLE_SHARE
    total = _QEMU_BYTES + share + (processors(vmi.spec.domain).total - 1) * _VCPU_BYTES
    return Amount((total - total % 1024) * NANO, Form.BINARY)


def _labels(vmi: VirtualMachineInstance) -> Mapping[str, str]:
    return {
        **vmi.metadata.labels,
        "kubevirt.io": "virt-launcher",
        CREATED_BY: vmi.metadata.uid,
        "vm.kubevirt.io/name": host_name(vmi),
        INSTANCE_ID: instance_id(vmi.metadata.name),
    }


def beside_checkpoint(document: Document, vmi: VirtualMachineInstance) -> Document:
    """Return the first pod of a VMI: on the node that has the checkpoint which it starts from.

    Later ones, to which it migrates, are on others: its guest has memory of its own by then.
    """
    node = vmi.metadata.annotations.get(START_ON, "")
    if not (node and starts_from(vmi)):
        return document
    spec = document["spec"]
    selector = {**spec.get("nodeSelector", {}), HOSTNAME_LABEL: node}
    return {**document, "spec": {**spec, "nodeSelector": selector}}


def relabelled(vmi: VirtualMachineInstance, pod: Pod) -> Document | None:
    """Return the patch of a pod whose VMI was handed out by its warm pool; None for others.

    Like KubeVirt's, other pods keep the labels that their VMI had when they were created.
    """
    if WARM_POOL_LABEL not in labels_of(pod) or WARM_POOL_LABEL in vmi.metadata.labels:
        return None
    return {"metadata": {"labels": {**dict.fromkeys(SPARE_LABELS), **_labels(vmi)}}}


def _annotations(vmi: VirtualMachineInstance) -> Mapping[str, str]:
    inherited = {
        name: value
        for name, value in vmi.metadata.annotations.items()
        if not name.startswith("kubectl.kubernetes.io") and name not in _OBSERVED
    }
    return {
        **inherited,
        "kubevirt.io/domain": vmi.metadata.name,
        "kubevirt.io/migrationTransportUnix": "true",
        EVICT_ONLY: "",
        "kubectl.kubernetes.io/default-container": COMPUTE,
    }


def _container_disks(vmi: VirtualMachineInstance) -> Iterator[tuple[str, ContainerDisk]]:
    for volume in vmi.spec.volumes:
        if volume.container_disk is not None:
            yield volume.name, volume.container_disk


def _disk_container(vmi: VirtualMachineInstance, name: str, disk: ContainerDisk) -> Document:
    return {
        "name": f"volume{name}",
        "image": disk.image,
        "imagePullPolicy": disk.image_pull_policy or pull_policy(disk.image),
        "resources": _helper_resources(vmi, _DISK_REQUESTS, _DISK_LIMITS),
    }


def _helper_resources(
    vmi: VirtualMachineInstance, requests: Mapping[str, str], limits: Mapping[str, str]
) -> Document:
    """Return resources of a helper; requests equal limits if the VMI's do, for QoS."""
    resources = vmi.spec.domain.resources or Resources()
    guaranteed = all(
        amount(resources.requests.get(name)) == amount(resources.limits.get(name)) > ZERO
        for name in ("cpu", "memory")
    )
    return {"requests": limits if guaranteed else requests, "limits": limits}


def _sidecars(vmi: VirtualMachineInstance) -> Iterator[Document]:
    """Yield containers that run as long as the VMI: the log of the serial console."""
    devices = vmi.spec.domain.devices
    if devices.autoattach_serial_console is not False and devices.log_serial_console is not False:
        yield {
            "name": CONSOLE_LOG,
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "resources": _helper_resources(vmi, _CONSOLE_REQUESTS, _CONSOLE_LIMITS),
        }


def _pull_secrets(disks: list[tuple[str, ContainerDisk]]) -> list[Document]:
    names = dict.fromkeys(disk.image_pull_secret for _, disk in disks if disk.image_pull_secret)
    return [{"name": name} for name in names]


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
