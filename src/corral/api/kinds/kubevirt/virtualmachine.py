"""VirtualMachine: keeps one machine as its run strategy says (KubeVirt's kubevirt.io/v1)."""

from typing import Annotated, ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import DataVolumeTemplate
from corral.api.kinds.vmi.schema_bounds import MOST
from corral.api.kinds.vmi.vmi import GROUP, Spec
from corral.api.object import AnyFields, Condition, Object, ObjectMeta, Struct, Time

FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
"""Holds a VirtualMachine, and its machine, until their controller has let go of them."""
GENERATION = "kubevirt.io/vm-generation"
"""Annotation of a machine: the generation of the VirtualMachine that it is as."""
IMMEDIATE_DATA_VOLUMES = "kubevirt.io/immediate-data-volume-creation"
"""Annotation of a VirtualMachine: ``false`` lets its DataVolumes wait for its first start."""

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
"""Key in a request to start: ``true`` lets the machine start paused."""


class VirtualMachineTemplate(Struct, kw_only=True):
    """What the machine is made of.

    metadata: its labels and annotations.
    spec: what it shall be.
    """

    spec: Spec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class InstancetypeMatcher(Struct, kw_only=True):
    """Names an instance type, or a preference.

    name: its name.
    kind: cluster-wide or of the namespace; cluster-wide unless said.
    revision_name: a ControllerRevision that holds it as it was.
    infer_from_volume: a volume whose labels name it.
    infer_from_volume_failure_policy: Reject or Ignore.
    """

    name: str = ""
    kind: str = ""
    revision_name: str = ""
    infer_from_volume: str = ""
    infer_from_volume_failure_policy: str | None = None


class VirtualMachineSpec(Struct, kw_only=True):
    """What the VirtualMachine shall be.

    template: what its machine is made of.
    running: whether its machine runs; runStrategy says more.
    run_strategy: Always, RerunOnFailure, Manual, Halted or Once.
    data_volume_templates: DataVolumes that are made for it.
    instancetype: processors and memory by name.
    preference: devices by name.
    update_volumes_strategy: Replacement or Migration: what changed volumes mean.
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
        """The run strategy, whichever way it is said."""
        if self.running is not None:
            return ALWAYS if self.running else HALTED
        return self.run_strategy or HALTED


class StateChangeRequest(Struct, kw_only=True):
    """Something that the machine was told to do and has not done yet.

    action: Start or Stop.
    data: parameters of the action.
    uid: of the machine that is meant.
    """

    action: str
    data: dict[str, str] = {}
    uid: str | None = None


class AddVolumeOptions(Struct, kw_only=True):
    """A volume that is to be added while the machine runs.

    name: of the volume.
    disk: how the guest sees it.
    volume_source: where its bytes come from.
    dry_run: All to try it only.
    """

    name: str
    disk: AnyFields | None = None
    volume_source: AnyFields | None = None
    dry_run: list[str] = []


class RemoveVolumeOptions(Struct, kw_only=True):
    """A volume that is to be taken away while the machine runs.

    name: of the volume.
    dry_run: All to try it only.
    """

    name: str
    dry_run: list[str] = []


class VolumeRequest(Struct, kw_only=True):
    """A wish for a change of volumes: one of the two.

    add_volume_options: one to add.
    remove_volume_options: one to take away.
    """

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class StartFailure(Struct, kw_only=True):
    """Machines that ended before they ran.

    consecutive_fail_count: how many, one after the other.
    last_failed_vmi_uid: the last of them.
    retry_after_timestamp: when the next one may be made.
    """

    consecutive_fail_count: int = 0
    last_failed_vmi_uid: str = msgspec.field(default="", name="lastFailedVMIUID")
    retry_after_timestamp: Time | None = None


class VolumeSnapshotStatus(Struct, kw_only=True):
    """Whether a volume can be snapshotted.

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
    controller_revision_ref: the revision that holds it as it was.
    infer_from_volume: the volume that it was inferred from.
    infer_from_volume_failure_policy: what happened when that failed.
    """

    name: str = ""
    kind: str = ""
    controller_revision_ref: ControllerRevisionRef | None = None
    infer_from_volume: str = ""
    infer_from_volume_failure_policy: str | None = None


class VirtualMachineStatus(Struct, kw_only=True):
    """What is known of the VirtualMachine.

    created: whether its machine is there.
    ready: whether its machine is ready.
    printable_status: all of it in one word.
    conditions: Ready, Failure, RestartRequired, and those of its machine.
    state_change_requests: what the machine was told to do and has not done yet.
    volume_requests: volumes to add or to take away, one a request.
    volume_snapshot_statuses: which volumes can be snapshotted.
    start_failure: machines that ended before they ran.
    observed_generation: the generation that its machine was made from.
    desired_generation: the generation that is wanted.
    run_strategy: the strategy that was last acted upon.
    memory_dump_request: a dump of the machine's memory that is wanted.
    volume_update_state: volumes that change their claims.
    instancetype_ref: the instancetype that is in use, and its kept form.
    preference_ref: the preference that is in use, and its kept form.
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
    """Keeps one machine as its run strategy says; its disks and its name outlive the machine.

    spec: what it shall be.
    status: what is known of it.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachine"

    spec: VirtualMachineSpec
    status: VirtualMachineStatus = msgspec.field(default_factory=VirtualMachineStatus)
