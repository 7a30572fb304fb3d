"""Reads the 2018 words of machines (kubevirt.io/v1alpha2, v1alpha3) as what they became.

A volume's ``registryDisk`` is called ``containerDisk`` today, and a disk is paired with its volume
by the same name, where it once named the volume in ``volumeName``.  Who applies such a manifest
again is shown it as it was applied: kubectl would find a difference otherwise.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from corral.api.apply.last_applied import ANNOTATION
from corral.api.encoding import decode_as
from corral.api.kind import Kind, Version, at
from corral.api.object import Document

_RENAMED: Final = (
    (re.compile(r"\bvolumes\[.*\]\.registryDisk$"), "containerDisk"),
    (re.compile(r"\bdisks\[.*\]\.volumeName$"), "name, which is the volume's too"),
)

Change = Callable[[Document], None]


def versions(read: Change, spell: Change) -> tuple[Version, ...]:
    """The versions in which the old words are known."""
    names = ("v1alpha3", "v1alpha2")
    return tuple(Version(name=name, deprecated=True, read=read, spell=spell) for name in names)


def hint(kind: Kind, path: str) -> str:
    """What an unknown field is called today, if it is an old word; else empty."""
    if kind.group != "kubevirt.io":
        return ""
    found = (today for old, today in _RENAMED if old.search(path))
    return next((f" (today it is called {today})" for today in found), "")


def read_instance(document: Document) -> None:
    """Turn a v1alpha2 VirtualMachineInstance into today's form, in place."""
    _read_spec(document.get("spec"))


def read_replica_set(document: Document) -> None:
    """Turn a v1alpha2 VirtualMachineInstanceReplicaSet into today's form, in place."""
    _read_spec(at(document, "spec", "template", "spec"))


def spell_instance(document: Document) -> None:
    """Show a VirtualMachineInstance in the words in which it was applied, in place."""
    _spell(document, "spec")


def spell_replica_set(document: Document) -> None:
    """Show a VirtualMachineInstanceReplicaSet in the words in which it was applied, in place."""
    _spell(document, "spec", "template", "spec")


def _spell(document: Document, *path: str) -> None:
    applied = at(_last_applied(document), *path)
    spec = at(document, *path)
    for place in (("volumes",), ("domain", "devices", "disks")):
        for now, then in zip(
            _objects(at(spec, *place)), _objects(at(applied, *place)), strict=False
        ):
            _spell_item(now, then)


def _spell_item(now: Document, then: Document) -> None:
    """Use the old words for what is still the same, and nulls, which are not kept (``disk:``)."""
    now |= {field: None for field, value in then.items() if value is None and field not in now}
    if "containerDisk" in now and now["containerDisk"] == then.get("registryDisk"):
        now["registryDisk"] = now.pop("containerDisk")
    if "volumeName" in then and now.get("name") == then["volumeName"]:
        now["volumeName"] = then["volumeName"]
        now.pop("name")
        now |= {"name": then["name"]} if "name" in then else {}


def _last_applied(document: Document) -> Document | None:
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
    """What is an object in a list; the schema refuses the rest later."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
