"""Patches of a VMI's status.migrationState.  Pure.

Each is guarded by the resource version: nodes write the same fields.
"""

from datetime import datetime
from typing import Final

import msgspec

from corral.api.kinds.kubevirt.migration import (
    TARGET_NODE,
    MigrationPolicy,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.vmi.migration_configuration import MigrationConfiguration
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.api.time import rfc3339

VMI = VirtualMachineInstance

_CLEARED: Final = {each.encode_name: None for each in msgspec.structs.fields(MigrationState)}
"""A patch that removes what an earlier migration left."""


def hand_off(
    vmi: VMI,
    migration: VirtualMachineInstanceMigration,
    *,
    source: str,
    target: str,
    target_node: str,
    policy: MigrationPolicy | None,
    settings: MigrationConfiguration,
) -> Document:
    """Return the patch by which nodes see a migration: the pods, the target node, the settings."""
    state = MigrationState(
        migration_uid=migration.metadata.uid,
        source_node=vmi.status.node_name,
        source_pod=source,
        target_node=target_node,
        target_pod=target,
        migration_policy_name=policy.metadata.name if policy is not None else None,
        migration_configuration=msgspec.to_builtins(settings),
    )
    return _patch(
        vmi, {**_CLEARED, **msgspec.to_builtins(state)}, labels={TARGET_NODE: target_node}
    )


def failed(vmi: VMI, reason: str, now: datetime, *, cancelled: bool) -> Document:
    """Return the patch by which a migration fails that its source has not begun."""
    moment = rfc3339(now)
    state: Document = {
        "failed": True,
        "completed": True,
        "startTimestamp": moment,
        "endTimestamp": moment,
        "failureReason": reason,
    }
    if cancelled:
        state |= {"abortRequested": True, "abortStatus": "Succeeded"}
    return _patch(vmi, state, labels={TARGET_NODE: None})


def abort_requested(vmi: VMI) -> Document:
    """Return the patch that asks the source to cancel."""
    return _patch(vmi, {"abortRequested": True})


def completed(vmi: VMI, now: datetime) -> Document:
    """Return the patch that completes a migration whose source is gone."""
    return _patch(vmi, {"completed": True, "endTimestamp": rfc3339(now)})


def labelled(vmi: VMI, node: str | None) -> Document:
    """Return the patch of the label by which a target node may read the VMI; None removes it."""
    return {
        "metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "labels": {TARGET_NODE: node},
        }
    }


def _patch(vmi: VMI, state: Document, labels: Document | None = None) -> Document:
    metadata: Document = {"resourceVersion": vmi.metadata.resource_version}
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, "status": {"migrationState": state}}
