"""VirtualMachinePool: a set of numbered VirtualMachines (KubeVirt's pool.kubevirt.io)."""

from typing import Annotated, ClassVar, Literal

import msgspec
from lightkube.models.core_v1 import NodeSelectorRequirement
from lightkube.models.meta_v1 import LabelSelector

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachineSpec
from corral.api.object import Condition, IntOrString, Object, ObjectMeta, Struct

GROUP = "pool.kubevirt.io"
FINALIZER = "pool.kubevirt.io/finalizer"
"""The finalizer of a pool and its VirtualMachines, which the pool controller removes."""
REVISION_LABEL = "kubevirt.io/vm-pool-revision-name"
"""Label of VirtualMachines and their VMIs: the ControllerRevision that they were made from."""

StatePreservation = Literal["Disabled", "Offline", "Online"]
SortPolicy = Literal["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"]


class PoolTemplate(Struct, kw_only=True):
    """The template of a pool's VirtualMachines.

    metadata: their labels and annotations.
    spec: desired state of each.
    """

    spec: VirtualMachineSpec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class NameGeneration(Struct, kw_only=True):
    """References that get the number of their VirtualMachine appended.

    append_index_to_config_map_refs: those to ConfigMaps.
    append_index_to_secret_refs: those to Secrets.
    """

    append_index_to_config_map_refs: bool | None = None
    append_index_to_secret_refs: bool | None = None


class Selectors(Struct, kw_only=True):
    """Selectors of VirtualMachines that may be chosen: all must match.

    label_selector: matched against the labels in spec.template.metadata.
    node_selector_requirement_matcher: matched against spec.template.spec.nodeSelector.
    """

    label_selector: LabelSelector | None = None
    node_selector_requirement_matcher: list[NodeSelectorRequirement] | None = None


class SelectionPolicy(Struct, kw_only=True):
    """The choice of VirtualMachines, and its order.

    sort_policy: the order; Random by default.
    selectors: which may be chosen at all; every one by default.
    """

    sort_policy: SortPolicy | None = None
    selectors: Selectors | None = None


class Unmanaged(Struct, kw_only=True):
    """The pool leaves it to its users."""


class OpportunisticScaleIn(Struct, kw_only=True):
    """Users choose the VirtualMachines to remove, by deleting them.

    state_preservation: state that is kept of removed ones; none by default.
    """

    state_preservation: StatePreservation | None = None


class ProactiveScaleIn(Struct, kw_only=True):
    """The pool chooses the VirtualMachines to remove.

    selection_policy: how it chooses.
    state_preservation: state that is kept of removed ones; none by default.
    """

    selection_policy: SelectionPolicy | None = None
    state_preservation: StatePreservation | None = None


class ScaleInStrategy(Struct, kw_only=True):
    """The way that the pool scales in: one of the three; proactive by default.

    unmanaged: it does not.
    opportunistic: users choose the VirtualMachines to remove.
    proactive: the pool chooses the VirtualMachines to remove.
    """

    unmanaged: Unmanaged | None = None
    opportunistic: OpportunisticScaleIn | None = None
    proactive: ProactiveScaleIn | None = None


class OpportunisticUpdate(Struct, kw_only=True):
    """VirtualMachines are updated, their machines at their next start."""


class ProactiveUpdate(Struct, kw_only=True):
    """VirtualMachines are updated, and their machines restarted.

    selection_policy: which of them, and in what order.
    """

    selection_policy: SelectionPolicy | None = None


class UpdateStrategy(Struct, kw_only=True):
    """The rollout of a changed template: one of the three; proactive by default.

    unmanaged: it does not.
    opportunistic: machines get it at their next start.
    proactive: machines are restarted.
    """

    unmanaged: Unmanaged | None = None
    opportunistic: OpportunisticUpdate | None = None
    proactive: ProactiveUpdate | None = None


class Autohealing(Struct, kw_only=True):
    """Recreation of a VirtualMachine that fails to start.

    start_up_failure_threshold: failed starts in a row; 3 by default.
    min_failing_to_start_duration: how long it must have been failing; 5m by default.
    """

    start_up_failure_threshold: Annotated[int, msgspec.Meta(ge=1, le=4294967295)] | None = None
    min_failing_to_start_duration: str | None = None


class PoolSpec(Struct, kw_only=True):
    """Desired state of the pool.

    selector: the VirtualMachines that belong to it; it must match the template's labels.
    virtual_machine_template: template of its VirtualMachines.
    replicas: desired number of VirtualMachines, 1 by default.
    paused: true stops it from making, changing and deleting VirtualMachines.
    name_generation: which references get the number of their VirtualMachine appended.
    max_unavailable: machines that an update may make unavailable at a time; 100% by default.
    scale_in_strategy: how it scales in: one of the three; proactive by default.
    update_strategy: how a changed template is rolled out: one of the three; proactive by default.
    autohealing: when a VirtualMachine that fails to start is recreated; never by default.
    """

    selector: LabelSelector
    virtual_machine_template: PoolTemplate
    replicas: Annotated[int, msgspec.Meta(ge=0, le=2147483647)] | None = None
    paused: bool = False
    name_generation: NameGeneration | None = None
    max_unavailable: IntOrString | None = None
    scale_in_strategy: ScaleInStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    autohealing: Autohealing | None = None


class PoolStatus(Struct, kw_only=True):
    """Observed state of the pool.

    replicas: its VirtualMachines, including those that are being deleted.
    ready_replicas: those of them whose machines are ready.
    conditions: ReplicaPaused and ReplicaFailure.
    label_selector: the selector as text, for autoscalers.
    """

    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] = []
    label_selector: str = ""


class VirtualMachinePool(Object, kw_only=True):
    """A set of VirtualMachines, named after the pool and numbered from 0.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "VirtualMachinePool"

    spec: PoolSpec
    status: PoolStatus = msgspec.field(default_factory=PoolStatus)
