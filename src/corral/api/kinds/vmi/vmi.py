"""VirtualMachineInstance: one run of a virtual machine (KubeVirt's kubevirt.io/v1)."""

from typing import Annotated, ClassVar

import msgspec
from lightkube.models.core_v1 import Affinity, PodDNSConfig, Toleration, TopologySpreadConstraint

from corral.api.kinds.vmi.access import AccessCredential
from corral.api.kinds.vmi.domain import Domain
from corral.api.kinds.vmi.networks import Network
from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.schema_bounds import MOST
from corral.api.kinds.vmi.status import Status
from corral.api.kinds.vmi.volumes import UtilityVolume, Volume
from corral.api.merge_keys import merged_by
from corral.api.object import Object, Struct

GROUP = "kubevirt.io"
FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
"""The finalizer of a VMI, removed when its machine is gone."""
UNKNOWN = "Unknown"
"""The phase of a VMI whose state cannot be determined, for instance because its QEMU hangs."""
FINAL_PHASES = frozenset({"Succeeded", "Failed"})
OBSERVED_VERSIONS = {
    "kubevirt.io/latest-observed-api-version": "v1",
    "kubevirt.io/storage-observed-api-version": "v1",
}
"""Annotations that KubeVirt's controllers put on the objects that they have observed."""


class ResourceClaim(Struct, kw_only=True):
    """A claim for devices of the node: exactly one of the two references.

    name: how devices of the machine refer to it.
    resource_claim_name: a ResourceClaim of the same namespace.
    resource_claim_template_name: a ResourceClaimTemplate of the same namespace.
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Spec(Struct, kw_only=True):
    """Desired state of the VMI.

    domain: processors, memory, firmware and devices.
    volumes: what its disks hold: a name and exactly one source each.
    networks: the networks that it joins: a name and exactly one source each.
    termination_grace_period_seconds: seconds that the guest has to shut down, 30 by default.
    hostname: the guest's name; the object's name by default.
    subdomain: makes the full name HOSTNAME.SUBDOMAIN.NAMESPACE.svc.
    readiness_probe: checks whether the guest is ready: exactly one action.
    liveness_probe: checks whether the guest is alive: exactly one action; the VMI fails when not.
    node_selector: labels that its node must have.
    affinity: affinity to nodes and to other pods.
    tolerations: taints of nodes that it tolerates.
    topology_spread_constraints: how machines spread over zones and nodes.
    scheduler_name: the scheduler of its pod.
    priority_class_name: its importance.
    eviction_strategy: None, LiveMigrate, LiveMigrateIfPossible or External.
    start_strategy: Paused to start it paused.
    dns_policy: how the guest resolves names.
    dns_config: servers and search domains.
    access_credentials: public keys or passwords for the guest, one of the two each.
    architecture: amd64 or arm64; the node's by default.
    service_account_name: ServiceAccount of its pod.
    resource_claims: claims for devices of the node, with exactly one reference each.
    utility_volumes: claims that are given to the launcher only.
    """

    domain: Domain
    volumes: Annotated[list[Volume], MOST] = []
    networks: Annotated[list[Network], MOST] = []
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: Annotated[
        list[TopologySpreadConstraint], merged_by("topologyKey", "whenUnsatisfiable")
    ] = []
    scheduler_name: str = ""
    priority_class_name: str = ""
    eviction_strategy: str | None = None
    start_strategy: str | None = None
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    access_credentials: Annotated[list[AccessCredential], MOST] = []
    architecture: str = ""
    service_account_name: str = ""
    resource_claims: Annotated[list[ResourceClaim], merged_by("name")] = []
    utility_volumes: Annotated[list[UtilityVolume], MOST] = []


class VirtualMachineInstance(Object, kw_only=True):
    """A virtual machine from its start to its end; it is not restarted.

    spec: desired state; immutable.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstance"

    spec: Spec
    status: Status = msgspec.field(default_factory=Status)

    @property
    def is_final(self) -> bool:
        """True if the VMI has reached a final phase."""
        return self.status.phase in FINAL_PHASES

    @property
    def is_migrating(self) -> bool:
        """True if the VMI has been handed to a migration that is not completed."""
        state = self.status.migration_state
        return state is not None and not state.completed
