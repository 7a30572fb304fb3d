"""Rules for volumes."""

import base64
import binascii
import posixpath
from collections.abc import Iterator

import msgspec

from corral.api.errors import Cause
from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.vmi import Spec
from corral.api.kinds.vmi.volumes import (
    CloudInitSource,
    ObjectName,
    Volume,
    claims_of,
)
from corral.api.names import label_faults
from corral.api.quantity import ZERO, amount

LONGEST_CLOUD_INIT = 2048
"""The most bytes of user data, or of network data, in the spec itself."""
PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")

_SOURCES = tuple(
    field.name for field in msgspec.structs.fields(Volume) if field.name not in ("name",)
)
_CLOUD_INIT = (
    # source, field of the spec
    ("cloud_init_no_cloud", "cloudInitNoCloud"),
    ("cloud_init_config_drive", "cloudInitConfigDrive"),
)


def check_volumes(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that names are unique, and each volume has one source."""
    first: dict[str, int] = {}
    for index, volume in enumerate(spec.volumes):
        here = f"{path}.volumes[{index}]"
        if volume.name in first:
            other = f"{path}.volumes[{first[volume.name]}]"
            message = f"{here} and {other} must not have the same Name."
            yield Cause(f"{here}.name", message)
        first.setdefault(volume.name, index)
        for fault in label_faults(volume.name):
            yield Cause(f"{here}.name", fault)
        if sum(getattr(volume, source) is not None for source in _SOURCES) != 1:
            yield Cause(here, f"{here} must have exactly one source type set")


def check_writers(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that no two disks write to the same file or claim, unless they are shareable.

    The second one could not be opened; KubeVirt fails only when the machine starts.
    """
    sharable = {disk.name for disk in spec.domain.devices.disks if _is_sharable(disk)}
    first: dict[tuple[str, str], int] = {}
    for index, volume in enumerate(spec.volumes):
        source = _writable_source(volume)
        if source is None or volume.name in sharable:
            continue
        if source in first:
            here, other = (f"{path}.volumes[{each}]" for each in (index, first[source]))
            message = f'{here} and {other} must not both write to the {source[0]} "{source[1]}".'
            yield Cause(here, f"{message} Make their disks shareable, or one of them read-only.")
        first.setdefault(source, index)


def _is_sharable(disk: Disk) -> bool:
    """Return whether a disk is shareable or read-only."""
    target = disk.disk or disk.lun
    return bool(disk.cdrom is not None or disk.shareable or (target and target.readonly))


def _writable_source(volume: Volume) -> tuple[str, str] | None:
    """Return the file or claim that a volume writes to, as kind and name; None if it has none."""
    if volume.host_disk is not None:
        return "file", posixpath.normpath(volume.host_disk.path)
    source = volume.persistent_volume_claim
    if volume.ephemeral is not None or (source is not None and source.read_only):
        return None
    claim = claims_of([volume]).get(volume.name)
    return ("claim", claim) if claim is not None else None


def check_container_disks(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the image is set, and the path in it is absolute."""
    for index, volume in enumerate(spec.volumes):
        disk, here = volume.container_disk, f"{path}.volumes[{index}].containerDisk"
        if disk is None:
            continue
        if not disk.image.strip():
            message = f"{here}.image is a required field"
            yield Cause(f"{here}.image", message, "FieldValueRequired")
        if disk.image_pull_policy not in PULL_POLICIES:
            allowed = ", ".join(f'"{policy}"' for policy in PULL_POLICIES[1:])
            message = f'Unsupported value: "{disk.image_pull_policy}": supported values: {allowed}'
            field = f"{here}.imagePullPolicy"
            yield Cause(field, f"{field}: {message}", "FieldValueNotSupported")
        if disk.path == "/":
            yield Cause(here, f"{here} must not point to root")
        elif disk.path and not _is_plain_path(disk.path):
            message = "must be an absolute path to a file without relative components"
            yield Cause(here, f"{here} {message}")


def _is_plain_path(path: str) -> bool:
    """Return whether a path is absolute, without ``.``, ``..`` and doubled slashes."""
    return posixpath.normpath(f"/{path.lstrip('/')}") == path.removesuffix("/")


def check_empty_disks(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that A blank disk has a capacity."""
    for index, volume in enumerate(spec.volumes):
        if volume.empty_disk is not None and amount(volume.empty_disk.capacity) <= ZERO:
            field = f"{path}.volumes[{index}].emptyDisk.capacity"
            message = f"{field} '{volume.empty_disk.capacity}': must be greater than 0."
            yield Cause(field, message)


def check_cloud_init(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that user data and network data have one source each, and are short if inline."""
    for index, volume in enumerate(spec.volumes):
        for source_name, field in _CLOUD_INIT:
            source = getattr(volume, source_name)
            if source is not None:
                yield from _check_cloud_init_source(source, f"{path}.volumes[{index}].{field}")


def _check_cloud_init_source(source: CloudInitSource, here: str) -> Iterator[Cause]:
    users = _sources(source.secret_ref, source.user_data_base64, source.user_data)
    networks = _sources(
        source.network_data_secret_ref, source.network_data_base64, source.network_data
    )
    if users > 1:
        yield Cause(here, f"{here} must have only one userdatasource set.")
    if networks > 1:
        yield Cause(here, f"{here} must have only one networkdata source set.")
    if not users and not networks:
        message = "must have at least one userdatasource or one networkdatasource set."
        yield Cause(here, f"{here} {message}")
    for name, encoded, plain, secret in (
        ("userData", source.user_data_base64, source.user_data, "UserDataSecretRef"),
        ("networkData", source.network_data_base64, source.network_data, "NetworkDataSecretRef"),
    ):
        try:
            size = len(base64.b64decode(encoded, validate=True)) if encoded else 0
        except (binascii.Error, ValueError):
            field, size = f"{here}.{name}Base64", 0
            yield Cause(field, f"{field} is not a valid base64 value.")
        if max(size, len(plain.encode(errors="surrogatepass"))) > LONGEST_CLOUD_INIT:
            message = f"{name.lower()} exceeds {LONGEST_CLOUD_INIT} byte limit."
            yield Cause(here, f"{here} {message} Should use {secret} for larger data.")


def _sources(secret: ObjectName | None, encoded: str, plain: str) -> int:
    return sum((secret is not None and bool(secret.name), bool(encoded), bool(plain)))


RULES = (
    check_volumes,
    check_writers,
    check_container_disks,
    check_empty_disks,
    check_cloud_init,
)
