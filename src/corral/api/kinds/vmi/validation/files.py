"""Rules for volumes made of files: ConfigMaps, Secrets, downward API, sysprep, host disks."""

import posixpath
from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.causes import duplicate, invalid, required, unsupported
from corral.api.kinds.vmi.downward_api import KEYED, PLAIN, parse_field_path
from corral.api.kinds.vmi.vmi import Spec
from corral.api.quantity import ZERO, amount

HOST_DISKS = ("Disk", "DiskOrCreate")
"""Types of host disks: those that exist, and those that are created if missing."""
LONGEST_LABEL = 32
"""Characters of a volume label (ISO 9660)."""
LONGEST_PATH = 200
MOST_PATH_SEGMENTS = 6
"""Limits of a file's path on ISO 9660."""


def check_sources(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that A volume of an object names it; at most one is of a ServiceAccount."""
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
    """Check that volume labels fit the file system; KubeVirt fails only when it makes the disk."""
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
                yield _with_field(invalid(here, label, fault))


def check_sysprep(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the answer file has one source; KubeVirt fails only when the machine starts."""
    for index, volume in enumerate(spec.volumes):
        source, here = volume.sysprep, f"{path}.volumes[{index}].sysprep"
        if source is None:
            continue
        named = [one for one in (source.secret, source.config_map) if one is not None and one.name]
        if len(named) != 1:
            yield Cause(here, f"{here} must name exactly one of secret and configMap")


def check_host_disks(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that A host disk has a path, and a capacity only if it may be created."""
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
        has_capacity = source.capacity is not None and amount(source.capacity) != ZERO
        if source.type == HOST_DISKS[0] and has_capacity:
            message = f"is allowed to pass only with {here}.type equal to '{HOST_DISKS[1]}'"
            yield Cause(f"{here}.capacity", f"{here}.capacity {message}")


def check_downward_api(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that each field path is supported and has a file of its own (as core/v1 does)."""
    for index, volume in enumerate(spec.volumes):
        if volume.downward_api is None:
            continue
        paths = [file.path for file in volume.downward_api.fields]
        used = set[str]()
        for number, file in enumerate(volume.downward_api.fields):
            here = f"{path}.volumes[{index}].downwardAPI.fields[{number}]"
            yield from map(_with_field, _check_path(file.path, f"{here}.path"))
            if file.path in used:
                yield _with_field(duplicate(f"{here}.path", file.path))
            used.add(file.path)
            if any(other.startswith(f"{file.path}/") for other in paths):
                yield _with_field(
                    invalid(f"{here}.path", file.path, "is a directory of another file")
                )
            if file.fieldRef is not None:
                yield from _check_field_path(file.fieldRef.fieldPath, f"{here}.fieldRef.fieldPath")
            elif file.resourceFieldRef is None:
                yield _with_field(
                    required(here, "one of fieldRef and resourceFieldRef is required")
                )


def _check_field_path(fact: str, here: str) -> Iterator[Cause]:
    try:
        parse_field_path(fact)
    except ValueError:
        facts = [f"metadata.{name}" for name in PLAIN | KEYED]
        yield _with_field(unsupported(here, fact, facts))


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
    elif len(path) > LONGEST_PATH or len(steps) > MOST_PATH_SEGMENTS:
        fault = f"must be at most {LONGEST_PATH} characters and {MOST_PATH_SEGMENTS} steps long"
        yield invalid(here, path, fault)


def _with_field(cause: Cause) -> Cause:
    """Put the field into the message: the refusals of webhooks show only messages."""
    return Cause(cause.field, f"{cause.field}: {cause.message}", cause.reason)


RULES = (check_sources, check_labels, check_sysprep, check_host_disks, check_downward_api)
