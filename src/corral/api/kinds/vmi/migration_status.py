"""Status of a VMI's latest live migration."""

from typing import Final

import msgspec

from corral.api.object import AnyFields, Quantity, Struct, Time

CONTROLLERS_FIELDS: Final = (
    "migrationUid",
    "sourceNode",
    "sourcePod",
    "targetNode",
    "targetPod",
)
"""Fields of ``status.migrationState`` that the migration controller decides, and nodes obey."""


class MigrationSide(Struct, kw_only=True):
    """Status of one side of a migration.

    node: the node.
    pod: the launcher's pod on it.
    migration_uid: the migration that this side is part of.
    domain_name: the name of the libvirt domain.
    domain_namespace: the namespace of the machine.
    sync_address: address over which both sides synchronize the state of the VMI.
    persistent_state_pvc_name: the claim that holds firmware variables and TPM.
    selinux_context: the label under which QEMU runs.
    virtual_machine_instance_uid: the machine's uid on this side.
    """

    node: str = ""
    pod: str = ""
    migration_uid: str = msgspec.field(default="", name="migrationUID")
    domain_name: str | None = None
    domain_namespace: str | None = None
    sync_address: str | None = None
    persistent_state_pvc_name: str | None = msgspec.field(
        default=None, name="persistentStatePVCName"
    )
    selinux_context: str = ""
    virtual_machine_instance_uid: str | None = msgspec.field(
        default=None, name="virtualMachineInstanceUID"
    )


class MigrationSource(MigrationSide, kw_only=True):
    """The source of a migration.

    node_selectors: labels that a node must have to take it.
    """

    node_selectors: dict[str, str] = {}


class MigrationTarget(MigrationSide, kw_only=True):
    """The target of a migration.

    domain_ready_timestamp: when the machine was ready to run here.
    domain_detected: whether the machine was observed here.
    node_address: where its memory is sent.
    direct_migration_node_ports: which port of the node leads to which of the machine's.
    attachment_pod_uid: the pod that brings hotplugged volumes here.
    cpu_set: processors of the node that it is pinned to.
    node_topology: the node's processors and memory, as text.
    """

    domain_ready_timestamp: Time | None = None
    domain_detected: bool = False
    node_address: str | None = None
    direct_migration_node_ports: dict[str, int] = {}
    attachment_pod_uid: str | None = msgspec.field(default=None, name="attachmentPodUID")
    cpu_set: list[int] = []
    node_topology: str | None = None


class MigrationState(Struct, kw_only=True):
    """The latest live migration.

    start_timestamp: when it began.
    end_timestamp: when it ended.
    target_node_domain_ready_timestamp: when the machine was ready to run on the target.
    target_node_domain_detected: whether the machine was observed on the target.
    target_node_address: where its memory is sent.
    target_direct_migration_node_ports: which port of the target leads to which of the machine's.
    target_node: the target node.
    target_pod: the launcher's pod there.
    target_attachment_pod_uid: the pod that brings hotplugged volumes there.
    source_node: the source node.
    source_pod: the launcher's pod there.
    completed: whether it is over.
    failed: whether it failed.
    abort_requested: whether its cancellation was requested.
    abort_status: progress of the cancellation.
    failure_reason: why it failed.
    migration_uid: uid of the VirtualMachineInstanceMigration.
    mode: PreCopy, PostCopy or Paused.
    migration_policy_name: the policy that it followed.
    migration_configuration: the settings that it followed.
    target_cpu_set: processors of the target that it is pinned to.
    target_node_topology: the target's processors and memory, as text.
    source_persistent_state_pvc_name: the claim with firmware variables and TPM of the source.
    target_persistent_state_pvc_name: the claim with firmware variables and TPM of the target.
    source_state: status of the source.
    target_state: status of the target.
    migration_network_type: the network that its memory goes over: Pod, or Migration.
    target_memory_overhead: memory of the target's launcher beside the guest's.
    """

    start_timestamp: Time | None = None
    end_timestamp: Time | None = None
    target_node_domain_ready_timestamp: Time | None = None
    target_node_domain_detected: bool = False
    target_node_address: str = ""
    target_direct_migration_node_ports: dict[str, int] = {}
    target_node: str = ""
    target_pod: str = ""
    target_attachment_pod_uid: str = msgspec.field(default="", name="targetAttachmentPodUID")
    source_node: str = ""
    source_pod: str = ""
    completed: bool = False
    failed: bool = False
    abort_requested: bool = False
    abort_status: str = ""
    failure_reason: str = ""
    migration_uid: str = ""
    mode: str = ""
    migration_policy_name: str | None = None
    migration_configuration: AnyFields | None = None
    target_cpu_set: list[int] = msgspec.field(default_factory=list, name="targetCPUSet")
    target_node_topology: str = ""
    source_persistent_state_pvc_name: str = msgspec.field(
        default="", name="sourcePersistentStatePVCName"
    )
    target_persistent_state_pvc_name: str = msgspec.field(
        default="", name="targetPersistentStatePVCName"
    )
    source_state: MigrationSource | None = None
    target_state: MigrationTarget | None = None
    migration_network_type: str = ""
    target_memory_overhead: Quantity | None = None
