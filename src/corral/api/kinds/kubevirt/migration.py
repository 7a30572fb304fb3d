"""VirtualMachineInstanceMigration and MigrationPolicy: the views of live migrations.

A VirtualMachineInstanceMigration requests one migration of one VMI (kubevirt.io/v1); a
MigrationPolicy has the settings of migrations of selected VMIs (migrations.kubevirt.io/v1alpha1).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from corral.api.kinds.vmi.migration_configuration import MigrationConfiguration
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.status import PhaseTransition
from corral.api.kinds.vmi.vmi import GROUP, VirtualMachineInstance
from corral.api.object import AnyFields, Condition, Key, Object, Quantity, Struct

POLICIES: Final = "migrations.kubevirt.io"

SELECTOR_LABEL: Final = "kubevirt.io/vmi-name"
"""Label of a migration: the name of its VMI."""
FINALIZER: Final = "kubevirt.io/migrationJobFinalize"
JOB_NAME: Final = "kubevirt.io/migrationJobName"
"""Annotation of a target pod: the name of the migration."""
TARGET_NODE: Final = "kubevirt.io/migrationTargetNodeName"
"""Label of a VMI that migrates: the target node."""
EVACUATION: Final = "kubevirt.io/evacuationMigration"
"""Annotation of a migration that evacuates a node: the node."""
EVICTION_SOURCE: Final = "kubevirt.io/eviction-source"
"""Annotation of a VMI that an eviction marked: who asked for that eviction."""
DESCHEDULER: Final = "descheduler"
REQUESTED_BY: Final = "requested-by"
"""Annotation by which an Eviction says who asks for it."""
DESCHEDULER_NAME: Final = "sigs.k8s.io/descheduler"
EVACUATION_TRIGGERED: Final = "Eviction triggered evacuation"
"""Beginning of the refusal of an eviction where the VMI leaves its node alive."""
EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
"""Annotation of a launcher pod: sigs' descheduler expects that an eviction of it takes its time."""
EVICTION_IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Annotation of a launcher pod whose VMI is being evacuated: the descheduler leaves it alone."""
IN_PROGRESS_BY: Final = "kubevirt"
"""Value of that annotation (KubeVirt's)."""
WORKLOAD_UPDATE: Final = "kubevirt.io/workloadUpdateMigration"
"""Annotation of a migration that renews the launcher of a VMI."""
UNSCHEDULABLE_TIMEOUT: Final = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
PENDING_TIMEOUT: Final = "kubevirt.io/migrationPendingPodTimeoutSeconds"
"""Annotations of a migration: seconds for which its target pod may be unschedulable, or pending."""

PENDING, SCHEDULING, SCHEDULED = "Pending", "Scheduling", "Scheduled"
PREPARING, READY, RUNNING = "PreparingTarget", "TargetReady", "Running"
SUCCEEDED, FAILED = "Succeeded", "Failed"
FINAL: Final = frozenset({SUCCEEDED, FAILED})

CRITICAL, USER, MAINTENANCE = "system-critical", "user-triggered", "system-maintenance"
PRIORITIES: Final[Mapping[str | None, int]] = {CRITICAL: 3, USER: 2, None: 2, MAINTENANCE: 1}
"""Priorities of migrations that wait for a slot: the highest starts first."""


class MigrationSpec(Struct, kw_only=True):
    """Desired migration.

    vmi_name: the VMI to migrate, in the same namespace.
    added_node_selector: labels that the target node must have, beside the VMI's own selector.
    send_to: the cluster or namespace to migrate to; not supported.
    receive: the cluster or namespace to migrate from; not supported.
    priority: system-critical, user-triggered or system-maintenance; set by controllers only.
    """

    vmi_name: str = ""
    added_node_selector: dict[str, str] = {}
    send_to: AnyFields | None = None
    receive: AnyFields | None = None
    priority: str | None = None


class MigrationStatus(Struct, kw_only=True):
    """Observed state of a migration.

    phase: Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or
        Failed.
    conditions: migrationAbortRequested and migrationRejectedByResourceQuota.
    phase_transition_timestamps: when each phase was entered.
    migration_state: the migration as the VMI's status had it.
    synchronization_addresses: addresses for migrations between clusters.
    """

    phase: str = ""
    conditions: list[Condition] = []
    phase_transition_timestamps: list[PhaseTransition] = []
    migration_state: MigrationState | None = None
    synchronization_addresses: list[str] = []


class VirtualMachineInstanceMigration(Object, kw_only=True):
    """A request to migrate a running VMI to another node.

    spec: the VMI, and where it may go.
    status: progress of the migration.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstanceMigration"

    spec: MigrationSpec
    status: MigrationStatus = msgspec.field(default_factory=MigrationStatus)

    @property
    def vmi_key(self) -> Key:
        """The key of its VMI."""
        return Key(self.metadata.namespace, self.spec.vmi_name)

    def state_in(self, vmi: VirtualMachineInstance) -> MigrationState | None:
        """Return the migrationState of a VMI, if it is of this migration."""
        state = vmi.status.migration_state
        return state if state is not None and state.migration_uid == self.metadata.uid else None

    @property
    def is_final(self) -> bool:
        """True if the migration has succeeded or failed."""
        return self.status.phase in FINAL

    @property
    def priority(self) -> int:
        """The rank of its priority; that of users for one without."""
        return PRIORITIES.get(self.spec.priority, PRIORITIES[USER])


class PolicySelectors(Struct, kw_only=True):
    """The VMIs that a policy is for: those that match both selectors.

    namespace_selector: labels of their namespace.
    virtual_machine_instance_selector: their own labels.
    """

    namespace_selector: dict[str, str] = {}
    virtual_machine_instance_selector: dict[str, str] = {}


class PolicySpec(Struct, kw_only=True):
    """Settings of the migrations of selected VMIs; those that are absent are the cluster's.

    selectors: the VMIs.
    allow_auto_converge: whether a guest that changes its memory too fast is slowed down.
    bandwidth_per_migration: bytes per second; 0 for no limit.
    completion_timeout_per_gib: seconds per GiB of memory and of copied disks.
    max_downtime_ms: milliseconds for which the guest may stand still at the switch-over.
    allow_post_copy: whether the guest may go on at the target before all of its memory is there.
    allow_workload_disruption: whether a guest may be paused to end a migration that takes too long.
    experimental: settings without a stable meaning.
    """

    selectors: PolicySelectors
    allow_auto_converge: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gib: int | None = msgspec.field(
        default=None, name="completionTimeoutPerGiB"
    )
    max_downtime_ms: int | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    experimental: AnyFields | None = None

    @property
    def settings(self) -> MigrationConfiguration:
        """The settings; with ``allowPostCopy`` alone a disruption is allowed as well (KubeVirt)."""
        disruption = self.allow_workload_disruption
        return MigrationConfiguration(
            allow_auto_converge=self.allow_auto_converge,
            bandwidth_per_migration=self.bandwidth_per_migration,
            completion_timeout_per_gib=self.completion_timeout_per_gib,
            max_downtime_ms=self.max_downtime_ms,
            allow_post_copy=self.allow_post_copy,
            allow_workload_disruption=self.allow_post_copy if disruption is None else disruption,
            experimental=self.experimental,
        )


class MigrationPolicy(Object, kw_only=True):
    """Settings of the migrations of selected VMIs.

    spec: the VMIs, and the settings.
    status: observed state; always empty.
    """

    api_version: ClassVar[str] = f"{POLICIES}/v1alpha1"
    kind: ClassVar[str] = "MigrationPolicy"

    spec: PolicySpec
    status: AnyFields = msgspec.field(default_factory=dict)


def matching_policy(
    policies: Iterable[MigrationPolicy], vmi: Mapping[str, str], namespace: Mapping[str, str]
) -> MigrationPolicy | None:
    """Return the policy for a VMI, by its labels and those of its namespace; None if there is none.

    The policy that selects by most labels counts, of several the one with more labels of the VMI,
    of several the first by name (KubeVirt's matchPolicy).
    """
    matching = [each for each in policies if _selects(each.spec.selectors, vmi, namespace)]
    return min(matching, key=_rank, default=None)


def _selects(
    selectors: PolicySelectors, vmi: Mapping[str, str], namespace: Mapping[str, str]
) -> bool:
    return (
        selectors.virtual_machine_instance_selector.items() <= vmi.items()
        and selectors.namespace_selector.items() <= namespace.items()
    )


def _rank(policy: MigrationPolicy) -> tuple[int, int, str]:
    own = len(policy.spec.selectors.virtual_machine_instance_selector)
    every = own + len(policy.spec.selectors.namespace_selector)
    return -every, -own, policy.metadata.name
