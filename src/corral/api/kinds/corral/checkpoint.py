"""VirtualMachineCheckpoint: memory, devices and disks of a running VMI, from which others start."""

from typing import ClassVar, Final, Literal

import msgspec

from corral.api.object import Condition, Key, Object, Struct

READY, FAILED = "Ready", "Failed"
DAMAGED: Final = "Damaged"
"""Reason of both conditions of a checkpoint whose files were complete, and are so no more."""

EVICTED: Final = "Evicted"
"""Reason of both conditions of a checkpoint that its node has removed, being short of disk."""


class CheckpointSource(Struct, kw_only=True):
    """The VMI that the checkpoint is made of, in the same namespace.

    kind: VirtualMachineInstance.
    name: the name of the VMI.
    """

    kind: Literal["VirtualMachineInstance"] = "VirtualMachineInstance"
    name: str


class CheckpointSpec(Struct, kw_only=True):
    """Desired checkpoint, which cannot be changed.

    source: the running VMI that the checkpoint is made of; the VMI goes on.
    """

    source: CheckpointSource


class CheckpointStatus(Struct, kw_only=True):
    """Observed state of the checkpoint.

    node_name: the node that has its files, where forks can start.
    source_uid: the uid of the VMI that it is made of, once that has begun.
    creation_time: when the source stood still for it.
    identity: the uid that the hardware of the source is derived from, and that of its forks.
    boot_sockets: the sockets that the source has started with, if it may get more.
    size_bytes: what its files occupy.
    digest: SHA-256 of its memory.
    forks: VMIs that exist and have started from it.
    observed_generation: the generation of the spec that this status is about.
    conditions: Ready, and Failed with the reason.
    """

    node_name: str = ""
    source_uid: str = msgspec.field(default="", name="sourceUID")
    creation_time: str = ""
    identity: str = ""
    boot_sockets: int | None = None
    size_bytes: int = 0
    digest: str = ""
    forks: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class VirtualMachineCheckpoint(Object, kw_only=True):
    """A running machine as it was at one moment: VMIs start from it instead of booting.

    spec: the VMI that it is made of.
    status: its progress, and where its files are.
    """

    api_version: ClassVar[str] = "corral.dev/v1alpha1"
    kind: ClassVar[str] = "VirtualMachineCheckpoint"

    spec: CheckpointSpec
    status: CheckpointStatus = msgspec.field(default_factory=CheckpointStatus)

    @property
    def source_key(self) -> Key:
        """The key of the VMI that it is made of."""
        return Key(self.metadata.namespace, self.spec.source.name)

    def has(self, condition: str) -> bool:
        """Return whether a condition is True."""
        return any(one.type == condition and one.status == "True" for one in self.status.conditions)

    @property
    def is_final(self) -> bool:
        """True if the checkpoint is complete, or has failed."""
        return self.has(READY) or self.has(FAILED)
