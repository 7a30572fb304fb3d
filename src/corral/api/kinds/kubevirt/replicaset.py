"""VirtualMachineInstanceReplicaSet: keeps a number of like machines alive."""

from typing import ClassVar

import msgspec
from lightkube.models.meta_v1 import LabelSelector

from corral.api.kinds.vmi.schema_bounds import Int32
from corral.api.kinds.vmi.vmi import GROUP, Spec
from corral.api.object import Condition, Object, ObjectMeta, Struct


class ReplicaSetTemplate(Struct, kw_only=True):
    """What the machines of a set are made of.

    metadata: labels, annotations and the stem of the machines' names.
    spec: what each machine shall be.
    """

    spec: Spec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ReplicaSetSpec(Struct, kw_only=True):
    """What the set shall be.

    selector: the machines that belong to it; it must match the template's labels.
    template: what its machines are made of; a change is for new machines only.
    replicas: how many machines it keeps, 1 unless said.
    paused: true stops it from making and deleting machines.
    """

    selector: LabelSelector
    template: ReplicaSetTemplate
    replicas: Int32 | None = None
    paused: bool = False


class ReplicaSetStatus(Struct, kw_only=True):
    """What is known of the set.

    replicas: machines that are neither finished nor going.
    ready_replicas: those of them that are ready.
    conditions: ReplicaPaused and ReplicaFailure.
    label_selector: the selector as text, for autoscalers.
    """

    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] = []
    label_selector: str = ""


class VirtualMachineInstanceReplicaSet(Object, kw_only=True):
    """Keeps a number of like machines alive, and replaces those that end.

    spec: what the set shall be.
    status: what is known of the set.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstanceReplicaSet"

    spec: ReplicaSetSpec
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)
