"""KubeVirt's and CDI's kinds that are not implemented.

Kinds that request an operation, such as a snapshot, are refused on create, as
KubeVirt does while their feature gate is off: an accepted object would look like work in progress,
and its client would wait for ever.  Kinds that are settings are stored, with a warning.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from corral.api.errors import Cause
from corral.api.kind import Column, Kind, Verdict, Version, Webhook
from corral.api.kinds.cdi.datavolume import GROUP as CDI_GROUP
from corral.api.kinds.columns import age, field, time, truth
from corral.api.kinds.vmi.vmi import GROUP
from corral.api.object import AnyFields, Document, Object

SNAPSHOT: Final = "snapshot.kubevirt.io"
BACKUP: Final = "backup.kubevirt.io"
EXPORT: Final = "export.kubevirt.io"
CLONE: Final = "clone.kubevirt.io"

_NO_SNAPSHOTS: Final = "corral takes no snapshots of machines in this version"
_NO_BACKUPS: Final = "corral makes no backups of machines in this version"
_NO_EXPORTS: Final = "corral exports no disks in this version"
_NO_CLONES: Final = "corral clones disks by DataVolumes, and no whole machines in this version"
_MAKES_VOLUMES: Final = "corral makes volumes itself, in its own way"


class _Spec(Object, kw_only=True):
    """An object without effect and without status.

    spec: desired state.
    """

    spec: AnyFields = msgspec.field(default_factory=dict)


class _SpecAndStatus(_Spec, kw_only=True):
    """An object without effect.

    status: observed state.
    """

    status: AnyFields = msgspec.field(default_factory=dict)


def _kind(
    name: str,
    plural: str,
    api_version: str,
    about: str,
    *columns: Column,
    validate: Callable[[Document, Document | None, str], Verdict],
    short: str = "",
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    status: bool = True,
    webhook: Webhook | None = None,
    others: tuple[Version, ...] = (),
) -> Kind:
    """Return a row of the table of kinds.

    ``api_version`` is stored, and ``others`` are served beside it.  ``about`` is the description of
    the kind in OpenAPI.
    """
    group, version = api_version.split("/")
    namespace = {"__doc__": about, "api_version": api_version, "kind": name}
    base = _SpecAndStatus if status else _Spec
    return Kind(
        group=group,
        plural=plural,
        short=(short, f"{short}s") if short else (),
        categories=categories,
        versions=(Version(name=version), *others),
        view=msgspec.defstruct(name, (), bases=(base,), namespace=namespace, module=__name__),
        namespaced=namespaced,
        status=status,
        columns=columns,
        validate=validate,
        webhook=webhook,
    )


def _operation(
    name: str,
    api_version: str,
    about: str,
    short: str,
    *columns: Column,
    why: str,
    webhook: str | tuple[str, str] = "",
    others: tuple[Version, ...] = (),
) -> Kind:
    """Return the row of a kind whose objects are refused on create."""
    cause = Cause("kind", f"{why}: nothing would act on this {name}", "FieldValueNotSupported")
    webhooks = (webhook, webhook) if isinstance(webhook, str) else webhook

    def validate(_document: Document, old: Document | None, _user: str) -> Verdict:
        return Verdict([cause] if old is None else [])

    return _kind(
        name,
        f"{name.lower()}s",
        api_version,
        about,
        *columns,
        validate=validate,
        short=short,
        categories=("all",),
        webhook=Webhook(*webhooks) if webhook else None,
        others=others,
    )


def _warning_validator(name: str, why: str) -> Callable[[Document, Document | None, str], Verdict]:
    warning = f"{why}: nothing acts on this {name}"
    return lambda _document, _old, _user: Verdict(warnings=[warning])


_OLD: Final = (Version(name="v1alpha1"),)
_PHASE: Final = field("Phase", "status", "phase", description="its phase")
_SOURCE: Final = (
    field("SourceKind", "spec", "source", "kind", description="kind of the source"),
    field("SourceName", "spec", "source", "name", description="name of the source"),
)
_READY: Final = (
    truth("ReadyToUse", "status", "readyToUse", description="whether it can be used"),
    time("CreationTime", "status", "creationTime", description="when it was taken"),
    field("Error", "status", "error", "message", description="why it failed"),
)

_OPERATIONS = (
    _operation(
        "VirtualMachineSnapshot",
        f"{SNAPSHOT}/v1beta1",
        "A request to snapshot a machine.",
        "vmsnapshot",
        *_SOURCE,
        _PHASE,
        *_READY,
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinesnapshot-validator.{SNAPSHOT}",
        others=_OLD,
    ),
    _operation(
        "VirtualMachineSnapshotContent",
        f"{SNAPSHOT}/v1beta1",
        "The content of a snapshot.",
        "vmsnapshotcontent",
        *_READY,
        why=_NO_SNAPSHOTS,
        others=_OLD,
    ),
    _operation(
        "VirtualMachineRestore",
        f"{SNAPSHOT}/v1beta1",
        "A request to restore a machine from a snapshot.",
        "vmrestore",
        field("TargetKind", "spec", "target", "kind", description="kind of the target"),
        field("TargetName", "spec", "target", "name", description="name of the target"),
        truth("Complete", "status", "complete", description="whether the restore is complete"),
        time("RestoreTime", "status", "restoreTime", description="when it was completed"),
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinerestore-validator.{SNAPSHOT}",
        others=_OLD,
    ),
    _operation(
        "VirtualMachineExport",
        f"{EXPORT}/v1beta1",
        "A request to export disks for download.",
        "vmexport",
        *_SOURCE,
        _PHASE,
        why=_NO_EXPORTS,
        webhook=f"virtualmachineexport-validator.{EXPORT}",
        others=(Version(name="v1"),),
    ),
    _operation(
        "VirtualMachineClone",
        f"{CLONE}/v1beta1",
        "A request to clone a machine, with its disks.",
        "vmclone",
        _PHASE,
        field("SourceVirtualMachine", "spec", "source", "name", description="the source"),
        field("TargetVirtualMachine", "spec", "target", "name", description="the clone"),
        why=_NO_CLONES,
        webhook=f"vm-clone-validator.{GROUP}",
        others=_OLD,
    ),
    _operation(
        "VirtualMachineBackup",
        f"{BACKUP}/v1alpha1",
        "A request to back up the disks of a running machine.",
        "vmbackup",
        *_SOURCE,
        field("Type", "status", "type", description="full or incremental"),
        field(
            "CheckpointName",
            "status",
            "checkpointName",
            description="checkpoint for the next backup",
        ),
        why=_NO_BACKUPS,
        webhook=f"virtualmachinebackup-validator.{BACKUP}",
    ),
    _operation(
        "VirtualMachineBackupTracker",
        f"{BACKUP}/v1alpha1",
        "The latest backup of a machine, on which the next incremental one is based.",
        "vmbackuptracker",
        *_SOURCE,
        field(
            "LatestCheckpoint",
            *("status", "latestCheckpoint", "name"),
            description="checkpoint for the next backup",
        ),
        time(
            "CheckpointTime",
            *("status", "latestCheckpoint", "creationTime"),
            description="when the checkpoint was taken",
        ),
        why=_NO_BACKUPS,
        webhook=f"virtualmachinebackuptracker-validator.{BACKUP}",
    ),
)
"""Kinds that are refused."""

_SETTINGS = (
    _kind(
        "VirtualMachineInstancePreset",
        "virtualmachineinstancepresets",
        f"{GROUP}/v1",
        """Defaults of machines with certain labels.

        spec: selector and defaults.
        """,
        age(),
        validate=_warning_validator(
            "VirtualMachineInstancePreset", "corral has no presets of machines"
        ),
        short="vmipreset",
        categories=("all",),
        status=False,
        others=(Version(name="v1alpha3"),),
    ),
    _kind(
        "StorageProfile",
        "storageprofiles",
        f"{CDI_GROUP}/v1beta1",
        "Capabilities and defaults of the volumes of a storage class.",
        age(),
        validate=_warning_validator("StorageProfile", _MAKES_VOLUMES),
        namespaced=False,
    ),
    _kind(
        "CDI",
        "cdis",
        f"{CDI_GROUP}/v1beta1",
        "The installation of CDI.",
        age(),
        _PHASE,
        validate=_warning_validator("CDI", "corral imports disks itself"),
        short="cdi",
        namespaced=False,
    ),
)
"""Kinds that are stored, with a warning."""

KINDS = (*_OPERATIONS, *_SETTINGS)
