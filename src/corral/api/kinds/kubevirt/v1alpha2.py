"""Conversion of kubevirt.io/v1alpha2 and v1alpha3, the versions of 2018.

A volume's ``registryDisk`` is ``containerDisk`` today, and a disk has its volume's name, where it
once had ``volumeName``.  Clients of an old version get the fields as they were applied: kubectl
apply would otherwise find a difference each time.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_as
from corral.api.kind import Kind, Version, at
from corral.api.object import Document

_RENAMED: Final = (
    (re.compile(r"\bvolumes\[.*\]\.registryDisk$"), "containerDisk"),
    (re.compile(r"\bdisks\[.*\]\.volumeName$"), "name, which is the volume's too"),
)

Change = Callable[[Document], None]


def versions(read: Change, spell: Change) -> tuple[Version, ...]:
    """Return the versions that have the old fields."""
    names = ("v1alpha3", "v1alpha2")
    return tuple(Version(name=name, deprecated=True, read=read, spell=spell) for name in names)


def hint(kind: Kind, path: str) -> str:
    """Return a hint at the present name of an unknown field; empty if it is not an old one."""
    if kind.group != "kubevirt.io":
        return ""
    names = (today for old, today in _RENAMED if old.search(path))
    return next((f" (today it is called {today})" for today in names), "")


def read_instance(document: Document) -> None:
    """Convert a v1alpha2 VirtualMachineInstance to v1, in place."""
    _read_spec(document.get("spec"))


def read_replica_set(document: Document) -> None:
    """Convert a v1alpha2 VirtualMachineInstanceReplicaSet to v1, in place."""
    _read_spec(at(document, "spec", "template", "spec"))


def spell_instance(document: Document) -> None:
    """Restore the old field names with which a VMI was applied, in place."""
    _restore(document, "spec")


def spell_replica_set(document: Document) -> None:
    """Restore the old field names with which a replica set was applied, in place."""
    _restore(document, "spec", "template", "spec")


def _restore(document: Document, *path: str) -> None:
    applied = at(_last_applied(document), *path)
    spec = at(document, *path)
    for place in (("volumes",), ("domain", "devices", "disks")):
        for now, then in zip(
            _objects(at(spec, *place)), _objects(at(applied, *place)), strict=False
        ):
            _restore_item(now, then)


def _restore_item(now: Document, then: Document) -> None:
    """Restore old names of unchanged values, and nulls, which are not stored (``disk:``)."""
    now |= {field: None for field, value in then.items() if value is None and field not in now}
    if "containerDisk" in now and now["containerDisk"] == then.get("registryDisk"):
        now["registryDisk"] = now.pop("containerDisk")
    if "volumeName" in then and now.get("name") == then["volumeName"]:
        now["volumeName"] = then["volumeName"]
        now.pop("name")
        now |= {"name": then["name"]} if "name" in then else {}


def _last_applied(document: Document) -> Document | None:
    from corral.api.apply.last_applied import ANNOTATION  # noqa: PLC0415 - and CEL, of the schemas

    text = (at(document, "metadata", "annotations") or {}).get(ANNOTATION, "")
    try:
        return decode_as(text, dict[str, Any]) if text else None
    except msgspec.DecodeError:
        return None


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
    """Return the objects in a list; the schema refuses other items later."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
