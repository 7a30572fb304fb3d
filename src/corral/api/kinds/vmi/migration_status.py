"""What is known of a machine's latest live migration."""

import msgspec

from corral.api.object import AnyFields, Quantity, Struct, Time


class MigrationSide(Struct, kw_only=True):
    """What both sides of a migration tell of themselves.

    node: the node.
    pod: the launcher's pod on it.
    migration_uid: the migration that this side is part of.
    domain_name: how libvirt calls the machine.
    domain_namespace: the namespace of the machine.
    sync_address: where both sides talk of the machine's state.
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
    """The side that the machine leaves.

    node_selectors: labels that a node must have to take it.
    """

    node_selectors: dict[str, str] = {}


class MigrationTarget(MigrationSide, kw_only=True):
    """The side that the machine comes to.

    domain_ready_timestamp: when the machine was ready to run here.
    domain_detected: whether it was seen here.
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
    target_node_domain_detected: whether it was seen on the target.
    target_node_address: where its memory is sent.
    target_direct_migration_node_ports: which port of the target leads to which of the machine's.
    target_node: the node that it comes to.
    target_pod: the launcher's pod there.
    target_attachment_pod_uid: the pod that brings hotplugged volumes there.
    source_node: the node that it leaves.
    source_pod: the launcher's pod there.
    completed: whether it is over.
    failed: whether it went wrong.
    abort_requested: whether it was called off.
    abort_status: how far calling it off has come.
    failure_reason: why it went wrong.
    migration_uid: the object that asked for it.
    mode: PreCopy, PostCopy or Paused: what the machine did meanwhile.
    migration_policy_name: the policy that it followed.
    migration_configuration: the settings that it followed.
    target_cpu_set: processors of the target that it is pinned to.
    target_node_topology: the target's processors and memory, as text.
    source_persistent_state_pvc_name: the claim with firmware variables and TPM that it leaves.
    target_persistent_state_pvc_name: the claim with firmware variables and TPM that it comes to.
    source_state: what the side that it leaves tells.
    target_state: what the side that it comes to tells.
    migration_network_type: the network that its memory goes over: Pod, or Migration.
    target_memory_overhead: memory that the launcher takes there beside the guest's.
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
