"""Rules for volumes that are made of files, the host's own among them."""

import posixpath
from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.causes import duplicate, invalid, required, unsupported
from corral.api.kinds.vmi.downward_api import KEYED, PLAIN, parsed
from corral.api.kinds.vmi.vmi import Spec
from corral.api.quantity import NOTHING, amount

HOST_DISKS = ("Disk", "DiskOrCreate")
"""Kinds of disks of the host: those that are there, and those that may be made."""
LONGEST_LABEL = 32
"""Of a file system on a disk (ISO 9660)."""
LONGEST_PATH = 200
MOST_STEPS = 6
"""Of a file on a disk: what ISO 9660 takes."""


def check_sources(spec: Spec, path: str) -> Iterator[Cause]:
    """A volume out of an object names that object; at most one is a ServiceAccount's."""
    for index, volume in enumerate(spec.volumes):
        here = f"{path}.volumes[{index}]"
        if volume.config_map is not None and not volume.config_map.name:
            yield _missing(f"{here}.configMap.name")
        if volume.secret is not None and not volume.secret.secret_name:
            yield _missing(f"{here}.secret.secretName")
        account = volume.service_account
        if account is not None and not account.service_account_name:
            yield _missing(f"{here}.serviceAccount.serviceAccountName")
    if sum(volume.service_account is not None for volume in spec.volumes) > 1:
        here = f"{path}.volumes"
        yield Cause(here, f"{here} must have max one serviceAccount volume set")


def _missing(field: str) -> Cause:
    return Cause(field, f"{field} is a required field")


def check_labels(spec: Spec, path: str) -> Iterator[Cause]:
    """Labels are ones that the file system can have; KubeVirt finds out when it makes the disk."""
    for index, volume in enumerate(spec.volumes):
        sources = {
            "configMap": volume.config_map,
            "secret": volume.secret,
            "downwardAPI": volume.downward_api,
        }
        for field, source in sources.items():
            label = source.volume_label if source is not None else ""
            if len(label) > LONGEST_LABEL or not (label.isascii() and label.isprintable()):
                here = f"{path}.volumes[{index}].{field}.volumeLabel"
                fault = f"must be at most {LONGEST_LABEL} printable ASCII characters"
                yield _whole(invalid(here, label, fault))


def check_sysprep(spec: Spec, path: str) -> Iterator[Cause]:
    """The answer file comes from one place; KubeVirt finds out when the machine starts."""
    for index, volume in enumerate(spec.volumes):
        source, here = volume.sysprep, f"{path}.volumes[{index}].sysprep"
        if source is None:
            continue
        named = [one for one in (source.secret, source.config_map) if one is not None and one.name]
        if len(named) != 1:
            yield Cause(here, f"{here} must name exactly one of secret and configMap")


def check_host_disks(spec: Spec, path: str) -> Iterator[Cause]:
    """A disk image of the host has a path, and a size only where it may be made."""
    for index, volume in enumerate(spec.volumes):
        source, here = volume.host_disk, f"{path}.volumes[{index}].hostDisk"
        if source is None:
            continue
        if not source.path:
            message = f"{here}.path is required for hostDisk volume"
            yield Cause(f"{here}.path", message, "FieldValueNotFound")
        if source.type not in HOST_DISKS:
            allowed = "' or '".join(HOST_DISKS)
            message = f"{here}.type has invalid value '{source.type}', allowed are '{allowed}'"
            yield Cause(f"{here}.type", message)
        sized = source.capacity is not None and amount(source.capacity) != NOTHING
        if source.type == HOST_DISKS[0] and sized:
            message = f"is allowed to pass only with {here}.type equal to '{HOST_DISKS[1]}'"
            yield Cause(f"{here}.capacity", f"{here}.capacity {message}")


def check_downward_api(spec: Spec, path: str) -> Iterator[Cause]:
    """Each fact is one that there is, and has a file of its own (core/v1's rules for pods)."""
    for index, volume in enumerate(spec.volumes):
        if volume.downward_api is None:
            continue
        paths = [file.path for file in volume.downward_api.fields]
        taken = set[str]()
        for number, file in enumerate(volume.downward_api.fields):
            here = f"{path}.volumes[{index}].downwardAPI.fields[{number}]"
            yield from map(_whole, _check_path(file.path, f"{here}.path"))
            if file.path in taken:
                yield _whole(duplicate(f"{here}.path", file.path))
            taken.add(file.path)
            if any(other.startswith(f"{file.path}/") for other in paths):
                yield _whole(invalid(f"{here}.path", file.path, "is a directory of another file"))
            if file.fieldRef is not None:
                yield from _check_fact(file.fieldRef.fieldPath, f"{here}.fieldRef.fieldPath")
            elif file.resourceFieldRef is None:
                yield _whole(required(here, "one of fieldRef and resourceFieldRef is required"))


def _check_fact(fact: str, here: str) -> Iterator[Cause]:
    try:
        parsed(fact)
    except ValueError:
        facts = [f"metadata.{name}" for name in PLAIN | KEYED]
        yield _whole(unsupported(here, fact, facts))


def _check_path(path: str, here: str) -> Iterator[Cause]:
    steps = path.split("/")
    if not path:
        yield required(here)
    elif path.startswith("/"):
        yield invalid(here, path, "must be a relative path")
    elif ".." in steps:
        yield invalid(here, path, "must not contain '..'")
    elif posixpath.normpath(path) != path or path == "." or not path.isprintable():
        yield invalid(here, path, "must be a plain path")
    elif len(path) > LONGEST_PATH or len(steps) > MOST_STEPS:
        fault = f"must be at most {LONGEST_PATH} characters and {MOST_STEPS} steps long"
        yield invalid(here, path, fault)


def _whole(cause: Cause) -> Cause:
    """A webhook's refusal shows messages only: this one is to name its field."""
    return Cause(cause.field, f"{cause.field}: {cause.message}", cause.reason)


RULES = (check_sources, check_labels, check_sysprep, check_host_disks, check_downward_api)
