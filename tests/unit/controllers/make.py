"""Objects for tests of the loops' decisions."""

from itertools import count

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.derived import pod_name
from corral.api.kinds.vmi.vmi import FINALIZER, VirtualMachineInstance

_UIDS = count()


def replica_set(
    *,
    name="set",
    replicas=3,
    paused=False,
    going=False,
    labels=None,
    template_name="",
) -> ReplicaSet:
    metadata = {"name": name, "namespace": "default", "uid": f"set-{next(_UIDS)}"}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    labels = labels or {"app": "test"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "name": template_name},
            "spec": {"domain": {"devices": {}}},
        },
        "paused": paused,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return msgspec.convert({"metadata": metadata, "spec": spec}, ReplicaSet)


def make_vmi(
    *,
    name="test1",
    phase="Running",
    ready=False,
    going=False,
    pod_terminating=False,
    node="",
    created=0,
    cost=None,
    spec=None,
    labels=None,
    transitions=(),
    conditions=None,
) -> VirtualMachineInstance:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{next(_UIDS)}",
        "resourceVersion": "7",
        "creationTimestamp": f"2026-01-01T00:00:0{created}Z",
        "finalizers": [FINALIZER],
        "labels": labels or {},
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    if conditions is None:
        conditions = []
        if pod_terminating:
            conditions = [{"type": "Ready", "status": "False", "reason": "PodTerminating"}]
        elif ready:
            conditions = [{"type": "Ready", "status": "True"}]
    status = {
        "phase": phase,
        "nodeName": node,
        "conditions": conditions,
        "phaseTransitionTimestamps": [
            {"phase": entered, "phaseTransitionTimestamp": moment}
            for entered, moment in transitions
        ],
    }
    document = {"metadata": metadata, "spec": spec or {"domain": {"devices": {}}}, "status": status}
    return msgspec.convert(document, VirtualMachineInstance)


def pod(
    of: VirtualMachineInstance,
    *,
    name="",
    phase="Pending",
    node="",
    running=False,
    ready=None,
    going=False,
    conditions=(),
    waiting="",
    created="",
) -> Pod:
    metadata = {
        "name": name or pod_name(of),
        "namespace": "default",
        "uid": f"pod-{next(_UIDS)}",
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "name": of.metadata.name,
                "uid": of.metadata.uid,
                "controller": True,
            }
        ],
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    if created:
        metadata["creationTimestamp"] = created
    conditions = list(conditions)
    if ready is not None:
        conditions.append({"type": "Ready", "status": "True" if ready else "False"})
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if running else {}
    if waiting:
        state = {"waiting": {"reason": waiting, "message": "no such image"}}
    container = {
        "name": "compute",
        "image": "x",
        "imageID": "",
        "ready": running,
        "restartCount": 0,
        "state": state,
    }
    status = {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [container],
        "qosClass": "Burstable",
    }
    spec = {"containers": [{"name": "compute", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)
