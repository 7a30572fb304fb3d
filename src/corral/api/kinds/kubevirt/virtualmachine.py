"""VirtualMachine: runs one VMI according to its run strategy (KubeVirt's kubevirt.io/v1)."""

from typing import Annotated, ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import DataVolumeTemplate
from corral.api.kinds.vmi.schema_bounds import MOST
from corral.api.kinds.vmi.vmi import GROUP, Spec, VirtualMachineInstance
from corral.api.object import AnyFields, Condition, Object, ObjectMeta, Struct, Time

FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
"""The finalizer of a VirtualMachine and its VMI, which the VM controller removes."""
GENERATION = "kubevirt.io/vm-generation"
"""Annotation of a VMI: the generation of its VirtualMachine that it corresponds to."""
RESTART_REQUIRED = "RestartRequired"
"""Condition of a VirtualMachine whose change waits for the next start."""
IMMEDIATE_DATA_VOLUMES = "kubevirt.io/immediate-data-volume-creation"
"""Annotation of a VirtualMachine: ``false`` defers its DataVolumes to its first start."""

ALWAYS, RERUN_ON_FAILURE, MANUAL, HALTED, ONCE = RUN_STRATEGIES = (
    "Always",
    "RerunOnFailure",
    "Manual",
    "Halted",
    "Once",
)
START, STOP = "Start", "Stop"
"""Actions of a StateChangeRequest."""
PAUSED = "paused"
"""Key in the data of a start request: ``true`` starts the VMI paused."""


class VirtualMachineTemplate(Struct, kw_only=True):
    """The template of the machine.

    metadata: its labels and annotations.
    spec: its desired state.
    """

    spec: Spec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class InstancetypeMatcher(Struct, kw_only=True):
    """Names an instance type, or a preference.

    name: its name.
    kind: the cluster-wide kind (the default) or the namespaced one.
    revision_name: the ControllerRevision of its content.
    infer_from_volume: a volume whose labels name it.
    infer_from_volume_failure_policy: Reject or Ignore.
    """

    name: str = ""
    kind: str = ""
    revision_name: str = ""
    infer_from_volume: str = ""
    infer_from_volume_failure_policy: str | None = None


class VirtualMachineSpec(Struct, kw_only=True):
    """Desired state of the VirtualMachine.

    template: template of its machine.
    running: whether its machine runs; deprecated, use runStrategy.
    run_strategy: Always, RerunOnFailure, Manual, Halted or Once.
    data_volume_templates: DataVolumes that are made for it.
    instancetype: processors and memory by name.
    preference: devices by name.
    update_volumes_strategy: how changed volumes are applied: Replacement or Migration.
    """

    template: VirtualMachineTemplate
    running: bool | None = None
    run_strategy: str | None = None
    data_volume_templates: Annotated[list[DataVolumeTemplate], MOST] = []
    instancetype: InstancetypeMatcher | None = None
    preference: InstancetypeMatcher | None = None
    update_volumes_strategy: str | None = None

    @property
    def strategy(self) -> str:
        """The run strategy, from ``running`` or ``runStrategy``."""
        if self.running is not None:
            return ALWAYS if self.running else HALTED
        return self.run_strategy or HALTED


class StateChangeRequest(Struct, kw_only=True):
    """A pending request to start or stop the machine.

    action: Start or Stop.
    data: parameters of the action.
    uid: uid of the machine.
    """

    action: str
    data: dict[str, str] = {}
    uid: str | None = None


class AddVolumeOptions(Struct, kw_only=True):
    """Options of a volume to hotplug.

    name: name of the volume.
    disk: its disk.
    volume_source: its source.
    dry_run: All for a dry run.
    """

    name: str
    disk: AnyFields | None = None
    volume_source: AnyFields | None = None
    dry_run: list[str] = []


class RemoveVolumeOptions(Struct, kw_only=True):
    """Options of a volume to unplug.

    name: name of the volume.
    dry_run: All for a dry run.
    """

    name: str
    dry_run: list[str] = []


class VolumeRequest(Struct, kw_only=True):
    """A request to change volumes: one of the two.

    add_volume_options: a volume to hotplug.
    remove_volume_options: a volume to unplug.
    """

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class StartFailure(Struct, kw_only=True):
    """Machines that failed to start.

    consecutive_fail_count: number of failures in a row.
    last_failed_vmi_uid: uid of the last one.
    retry_after_timestamp: when the next one may be made.
    """

    consecutive_fail_count: int = 0
    last_failed_vmi_uid: str = msgspec.field(default="", name="lastFailedVMIUID")
    retry_after_timestamp: Time | None = None


class VolumeSnapshotStatus(Struct, kw_only=True):
    """The ability of a volume to be snapshotted.

    name: the volume.
    enabled: whether it can.
    reason: why not.
    """

    name: str
    enabled: bool
    reason: str = ""


class ControllerRevisionRef(Struct, kw_only=True):
    """Names a ControllerRevision.

    name: its name.
    """

    name: str = ""


class InstancetypeStatusRef(Struct, kw_only=True):
    """The instance type, or preference, that is in use.

    name: its name.
    kind: its kind.
    controller_revision_ref: the ControllerRevision of its content.
    infer_from_volume: the volume that it was inferred from.
    infer_from_volume_failure_policy: what was to happen if that failed.
    """

    name: str = ""
    kind: str = ""
    controller_revision_ref: ControllerRevisionRef | None = None
    infer_from_volume: str = ""
    infer_from_volume_failure_policy: str | None = None


class VirtualMachineStatus(Struct, kw_only=True):
    """Observed state of the VirtualMachine.

    created: whether its machine exists.
    ready: whether its machine is ready.
    printable_status: status in one word.
    conditions: Ready, Failure, RestartRequired, and those of its machine.
    state_change_requests: pending requests to start or stop the machine.
    volume_requests: pending requests to hotplug or unplug volumes.
    volume_snapshot_statuses: which volumes can be snapshotted.
    start_failure: machines that failed to start.
    observed_generation: the generation that its machine was made from.
    desired_generation: the generation of the spec.
    run_strategy: the run strategy that was last acted upon.
    memory_dump_request: a requested dump of the machine's memory.
    volume_update_state: volumes that migrate to other claims.
    instancetype_ref: the instancetype in use, and its ControllerRevision.
    preference_ref: the preference in use, and its ControllerRevision.
    snapshot_in_progress: the snapshot that is being made.
    restore_in_progress: the snapshot that is being restored.
    """

    created: bool = False
    ready: bool = False
    printable_status: str = ""
    conditions: list[Condition] = []
    state_change_requests: list[StateChangeRequest] = []
    volume_requests: list[VolumeRequest] = []
    volume_snapshot_statuses: list[VolumeSnapshotStatus] = []
    start_failure: StartFailure | None = None
    memory_dump_request: AnyFields | None = None
    observed_generation: int = 0
    desired_generation: int = 0
    run_strategy: str = ""
    volume_update_state: AnyFields | None = None
    instancetype_ref: InstancetypeStatusRef | None = None
    preference_ref: InstancetypeStatusRef | None = None
    snapshot_in_progress: str | None = None
    restore_in_progress: str | None = None


class VirtualMachine(Object, kw_only=True):
    """A virtual machine that is started and stopped; its disks and its name outlive each run.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachine"

    spec: VirtualMachineSpec
    status: VirtualMachineStatus = msgspec.field(default_factory=VirtualMachineStatus)


def generation(vmi: VirtualMachineInstance) -> int:
    """Return the generation of its VirtualMachine that a VMI matches; 0 without the annotation."""
    text = vmi.metadata.annotations.get(GENERATION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
