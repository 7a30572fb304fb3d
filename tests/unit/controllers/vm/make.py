"""Objects for tests of what is decided about VirtualMachines."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.unit.controllers.make import make_vmi as any_vmi

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.kubevirt.virtualmachine import FINALIZER, VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STRATEGIES = ("Always", "RerunOnFailure", "Manual", "Halted", "Once")

_UIDS = count()


def vm(
    strategy: str | bool = "Always",
    *,
    requests: tuple[dict[str, Any], ...] = (),
    going: bool = False,
    acted: str = "",
    failure: dict[str, Any] | None = None,
    conditions: tuple[dict[str, Any], ...] = (),
    volumes: tuple[dict[str, Any], ...] = (),
    templates: tuple[dict[str, Any], ...] = (),
    annotations: dict[str, str] | None = None,
    template: dict[str, Any] | None = None,
    generation: int = 1,
) -> VirtualMachine:
    metadata: dict[str, Any] = {
        "name": "testvm",
        "namespace": "default",
        "uid": f"vm-{next(_UIDS)}",
        "generation": generation,
        "resourceVersion": "7",
        "annotations": annotations or {},
        "finalizers": [FINALIZER],
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    how = {"running": strategy} if isinstance(strategy, bool) else {"runStrategy": strategy}
    spec = {"domain": {"devices": {}}, "volumes": list(volumes)}
    status: dict[str, Any] = {
        "stateChangeRequests": list(requests),
        "runStrategy": acted,
        "conditions": list(conditions),
    }
    if failure is not None:
        status["startFailure"] = failure
    document = {
        "metadata": metadata,
        "spec": {
            **how,
            "template": {"spec": spec, **(template or {})},
            "dataVolumeTemplates": list(templates),
        },
        "status": status,
    }
    return msgspec.convert(document, VirtualMachine)


def vmi(phase: str = "Running", **fields: Any) -> VirtualMachineInstance:
    """A VMI; one that runs or ran has passed through Running, unless ``entered`` differs."""
    passed = {"Running": ("Running",), "Succeeded": ("Running", phase)}.get(phase, (phase,))
    entered = fields.pop("entered", passed)
    transitions = [(each, "2026-01-01T00:00:00Z") for each in entered]
    return any_vmi(name="testvm", phase=phase, transitions=transitions, **fields)


def start(**data: str) -> dict[str, Any]:
    return {"action": "Start", "data": data}


def stop(of: VirtualMachineInstance | str) -> dict[str, Any]:
    return {"action": "Stop", "uid": of if isinstance(of, str) else of.metadata.uid}


def data_volume(name: str, phase: str, *conditions: dict[str, Any], owner: str = "") -> DataVolume:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"dv-{name}"}
    if owner:
        reference = {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": owner}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    status = {"phase": phase, "conditions": list(conditions)}
    return msgspec.convert({"metadata": metadata, "spec": {}, "status": status}, DataVolume)


def claim(name: str, phase: str) -> PersistentVolumeClaim:
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "status": {"phase": phase}},
        PersistentVolumeClaim,
    )
