"""VirtualMachineInstanceReplicaSet: a set of identical VMIs."""

from typing import ClassVar

import msgspec
from lightkube.models.meta_v1 import LabelSelector

from corral.api.kinds.vmi.schema_bounds import Int32
from corral.api.kinds.vmi.vmi import GROUP, Spec
from corral.api.object import Condition, Object, ObjectMeta, Struct


class ReplicaSetTemplate(Struct, kw_only=True):
    """The template of a set's machines.

    metadata: labels, annotations and the prefix of the machines' names.
    spec: desired state of each machine.
    """

    spec: Spec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ReplicaSetSpec(Struct, kw_only=True):
    """Desired state of the set.

    selector: the machines that belong to it; it must match the template's labels.
    template: template of its machines; a change is for new machines only.
    replicas: desired number of machines, 1 by default.
    paused: true stops it from making and deleting machines.
    """

    selector: LabelSelector
    template: ReplicaSetTemplate
    replicas: Int32 | None = None
    paused: bool = False


class ReplicaSetStatus(Struct, kw_only=True):
    """Observed state of the set.

    replicas: machines that are neither finished nor being deleted.
    ready_replicas: those of them that are ready.
    conditions: ReplicaPaused and ReplicaFailure.
    label_selector: the selector as text, for autoscalers.
    """

    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] = []
    label_selector: str = ""


class VirtualMachineInstanceReplicaSet(Object, kw_only=True):
    """A set of identical machines; those that end are replaced.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstanceReplicaSet"

    spec: ReplicaSetSpec
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)
