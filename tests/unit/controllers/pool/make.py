"""Pools, their VirtualMachines and machines, for tests of what the loop decides."""

import copy
from itertools import count

import msgspec

from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL, VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.objects import owner_reference

LABELS = {"pool": "web"}
_UIDS = count()


def pool(*, name="web", replicas=3, generation=1, template=None, going=False, **spec) -> Pool:
    """A pool; ``template`` is merged over the spec of its VirtualMachines."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "generation": generation,
        "finalizers": [FINALIZER],
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document = {
        "selector": {"matchLabels": LABELS},
        "virtualMachineTemplate": {
            "metadata": {"labels": LABELS},
            "spec": {
                "runStrategy": "Always",
                "template": {"metadata": {"labels": LABELS}, "spec": {"domain": {"devices": {}}}},
                **(template or {}),
            },
        },
        **copy.deepcopy(spec),
    }
    if replicas is not None:
        document["replicas"] = replicas
    return msgspec.convert({"metadata": metadata, "spec": document}, Pool)


def vm(
    of: Pool,
    number=0,
    *,
    name="",
    revision="web-1",
    going=False,
    created=0,
    ready=False,
    labels=None,
    annotations=None,
    finalizers=(FINALIZER,),
    template=None,
    status=None,
    probed=None,
) -> VirtualMachine:
    """A VirtualMachine of a pool; ``probed``: since when it is not ready."""
    labels = dict(LABELS if labels is None else labels)
    if revision:
        labels[REVISION_LABEL] = revision
    metadata = {
        "name": name or f"{of.metadata.name}-{number}",
        "namespace": "default",
        "uid": f"vm-{next(_UIDS)}",
        "resourceVersion": "7",
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        "labels": labels,
        "annotations": annotations or {},
        "finalizers": list(finalizers),
        "ownerReferences": [owner_reference(of)],
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if probed:
        conditions[0]["lastProbeTime"] = probed
    template = template or {"metadata": {"labels": LABELS}, "spec": {"domain": {"devices": {}}}}
    document = {
        "metadata": metadata,
        "spec": {"runStrategy": "Always", "template": template},
        "status": {"conditions": conditions, **(status or {})},
    }
    return msgspec.convert(document, VirtualMachine)


def make_vmi(
    of: VirtualMachine, *, revision=None, phase="Running", ready=True, going=False
) -> VirtualMachineInstance:
    """The machine of a VirtualMachine; of the same revision unless said."""
    revision = of.metadata.labels.get(REVISION_LABEL, "") if revision is None else revision
    metadata = {
        "name": of.metadata.name,
        "namespace": "default",
        "uid": f"machine-{next(_UIDS)}",
        "labels": {**LABELS, **({REVISION_LABEL: revision} if revision else {})},
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    document = {
        "metadata": metadata,
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase, "conditions": conditions},
    }
    return msgspec.convert(document, VirtualMachineInstance)
