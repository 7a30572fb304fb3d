"""Reads the 2018 form of machines (kubevirt.io/v1alpha2) as what it became.

A volume's ``registryDisk`` is called ``containerDisk`` today, and a disk is paired with its volume
by the same name, where it once named the volume in ``volumeName``.
"""

from typing import Any

from corral.api.kind import at
from corral.api.object import Document


def read_instance(document: Document) -> None:
    """Turn a v1alpha2 VirtualMachineInstance into today's form, in place."""
    _read_spec(document.get("spec"))


def read_replica_set(document: Document) -> None:
    """Turn a v1alpha2 VirtualMachineInstanceReplicaSet into today's form, in place."""
    _read_spec(at(document, "spec", "template", "spec"))


def _read_spec(spec: Any) -> None:
    if not isinstance(spec, dict):
        return
    for volume in _objects(spec.get("volumes")):
        if "registryDisk" in volume and "containerDisk" not in volume:
            volume["containerDisk"] = volume.pop("registryDisk")
    for disk in _objects(at(spec, "domain", "devices", "disks")):
        if "volumeName" in disk:
            disk["name"] = disk.pop("volumeName")


def _objects(items: Any) -> list[dict[str, Any]]:
    """What is an object in a list; the schema refuses the rest later."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
