"""The status of a VMI's live migration, as far as its two nodes own it.  Pure.

The target's node writes where it receives, and, in one change with the node of the VMI, that the
guest runs there; the source's node writes the start and failures (KubeVirt's virt-handler).
"""

from typing import Final

from corral.api.kinds.kubevirt.migration import EVICTION_SOURCE, TARGET_NODE
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.node.state.facts import Facts, Migration, Progress
from corral.node.state.machine_record import Record

ABORT_FAILED: Final = "Failed"
_PRE_COPY: Final = "PreCopy"


def migration_changes(
    record: Record, facts: Facts, vmi: VirtualMachineInstance, *, node: str, address: str, now: str
) -> Document:
    """Return the changes of the VMI that its migration causes: of its labels and its status.

    node: this node, whose address is ``address``.
    """
    state, migration = vmi.status.migration_state, facts.migration
    if state is None or migration is None or state.migration_uid != migration.uid:
        return {}
    if record.arrival == migration.uid:
        return _of_target(record, migration, state, vmi, node=node, address=address, now=now)
    changes = _of_source(migration, state, now)
    return {"status": {"migrationState": changes}} if changes else {}


def _of_target(
    record: Record,
    migration: Migration,
    state: MigrationState,
    vmi: VirtualMachineInstance,
    *,
    node: str,
    address: str,
    now: str,
) -> Document:
    if migration.progress is Progress.PREPARED and not state.target_node_address:
        prepared: Document = {
            "targetNodeAddress": address,
            "targetDirectMigrationNodePorts": {"0": 0},
            "targetNodeDomainDetected": True,
        }
        return {"status": {"migrationState": prepared}}
    if migration.progress is not Progress.ARRIVED or state.completed:
        return {}
    over: Document = {"targetNodeDomainReadyTimestamp": now, "endTimestamp": now, "completed": True}
    if state.abort_requested:
        over["abortStatus"] = ABORT_FAILED
    descheduled = EVICTION_SOURCE in vmi.metadata.annotations
    others = dict.fromkeys(uid for uid in vmi.status.active_pods if uid != record.pod_uid)
    return {
        "metadata": {
            "labels": {NODE_LABEL: node, TARGET_NODE: None},
            **({"annotations": {EVICTION_SOURCE: None}} if descheduled else {}),
        },
        "status": {
            "nodeName": node,
            "activePods": {**others, record.pod_uid: node},
            "evacuationNodeName": None,
            "launcherContainerImageVersion": record.launcher,
            "migrationState": over,
        },
    }


def _of_source(migration: Migration, state: MigrationState, now: str) -> Document:
    if state.completed:
        return {}
    changes: Document = {}
    if state.start_timestamp is None:
        changes |= {"startTimestamp": now, "mode": _PRE_COPY}
    if migration.progress is Progress.FAILED:
        changes |= {
            "endTimestamp": now,
            "completed": True,
            "failed": True,
            "failureReason": migration.failure,
        }
        if migration.abort:
            changes["abortStatus"] = migration.abort
    return changes
