"""The target pod of a migration: a launcher pod of the same VMI, on another node.  Pure."""

from collections.abc import Sequence
from typing import Final

from corral.api.kinds.kubevirt.migration import JOB_NAME, VirtualMachineInstanceMigration
from corral.api.kinds.vmi.derived import MIGRATION_UID, target_pod_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def target_pod(
    launcher: Document,
    migration: VirtualMachineInstanceMigration,
    vmi: VirtualMachineInstance,
    excluded: Sequence[str],
) -> Document:
    """Return the target pod, from a launcher pod of the VMI as it is created today.

    It does not run on the ``excluded`` nodes.  A selector of the migration narrows that of the VMI,
    and never replaces a value of it.
    """
    metadata, spec = launcher["metadata"], launcher["spec"]
    selector = {**migration.spec.added_node_selector, **(spec.get("nodeSelector") or {})}
    affinity = _elsewhere(spec.get("affinity") or {}, excluded)
    return {
        "metadata": {
            **metadata,
            "name": target_pod_name(vmi, migration.metadata.uid),
            "labels": {**metadata["labels"], MIGRATION_UID: migration.metadata.uid},
            "annotations": {**metadata["annotations"], JOB_NAME: migration.metadata.name},
        },
        "spec": {
            **spec,
            "affinity": affinity,
            **({"nodeSelector": selector} if selector else {}),
        },
    }


def _elsewhere(affinity: Document, nodes: Sequence[str]) -> Document:
    """Return an affinity that also excludes some nodes.

    Terms of a required node affinity are alternatives, so each of them gets the conditions; those
    on names have one value each.
    """
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *others]} for term in terms
    ]
    required = {"nodeSelectorTerms": narrowed}
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: required}}
