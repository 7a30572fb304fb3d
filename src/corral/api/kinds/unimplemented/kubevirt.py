"""KubeVirt's and CDI's kinds on which nothing here acts yet.

Those by which something is ordered (move this machine, take a snapshot of it) are refused when they
are made, as KubeVirt refuses them while the feature gate is off: an object of theirs that nobody
acts on would look like work under way, and whoever waits for it would wait for ever.  Those that
say how things shall be are kept, with a warning.  Clients that list or watch any of them find none.
"""

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from corral.api.errors import Cause
from corral.api.kind import Column, Kind, Verdict, Version, Webhook
from corral.api.kinds.cdi.datavolume import GROUP as CDI_GROUP
from corral.api.kinds.columns import age, field, value
from corral.api.kinds.vmi.vmi import GROUP
from corral.api.object import AnyFields, Document, Object

SNAPSHOT: Final = "snapshot.kubevirt.io"
BACKUP: Final = "backup.kubevirt.io"
EXPORT: Final = "export.kubevirt.io"
CLONE: Final = "clone.kubevirt.io"
MIGRATIONS: Final = "migrations.kubevirt.io"

_ONE_HOST: Final = "all machines of corral are on one host, and none is moved"
_NO_SNAPSHOTS: Final = "corral takes no snapshots of machines in this version"
_NO_BACKUPS: Final = "corral makes no backups of machines in this version"
_NO_EXPORTS: Final = "corral exports no disks in this version"
_NO_CLONES: Final = "corral clones disks by DataVolumes, and no whole machines in this version"
_MAKES_VOLUMES: Final = "corral makes volumes itself, in its own way"


class _Idle(Object, kw_only=True):
    """An object on which nothing acts.

    spec: what is asked for.
    status: what has come of it.
    """

    spec: AnyFields = msgspec.field(default_factory=dict)
    status: AnyFields = msgspec.field(default_factory=dict)


class VirtualMachineInstanceMigration(_Idle, kw_only=True):
    """The order to move a running machine to another node."""

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstanceMigration"


class VirtualMachineInstancePreset(Object, kw_only=True):
    """What machines with certain labels get where they say nothing themselves.

    spec: which machines, and what they get.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "VirtualMachineInstancePreset"

    spec: AnyFields = msgspec.field(default_factory=dict)


class MigrationPolicy(_Idle, kw_only=True):
    """How certain machines are moved."""

    api_version: ClassVar[str] = f"{MIGRATIONS}/v1alpha1"
    kind: ClassVar[str] = "MigrationPolicy"


class VirtualMachineSnapshot(_Idle, kw_only=True):
    """The order to keep a machine as it is now."""

    api_version: ClassVar[str] = f"{SNAPSHOT}/v1beta1"
    kind: ClassVar[str] = "VirtualMachineSnapshot"


class VirtualMachineSnapshotContent(_Idle, kw_only=True):
    """What a snapshot consists of."""

    api_version: ClassVar[str] = f"{SNAPSHOT}/v1beta1"
    kind: ClassVar[str] = "VirtualMachineSnapshotContent"


class VirtualMachineRestore(_Idle, kw_only=True):
    """The order to make a machine what it was when a snapshot was taken."""

    api_version: ClassVar[str] = f"{SNAPSHOT}/v1beta1"
    kind: ClassVar[str] = "VirtualMachineRestore"


class VirtualMachineClone(_Idle, kw_only=True):
    """The order to make a second machine like another, with disks of its own."""

    api_version: ClassVar[str] = f"{CLONE}/v1beta1"
    kind: ClassVar[str] = "VirtualMachineClone"


class VirtualMachineExport(_Idle, kw_only=True):
    """The order to offer disks for download."""

    api_version: ClassVar[str] = f"{EXPORT}/v1beta1"
    kind: ClassVar[str] = "VirtualMachineExport"


class VirtualMachineBackup(_Idle, kw_only=True):
    """The order to copy the disks of a running machine."""

    api_version: ClassVar[str] = f"{BACKUP}/v1alpha1"
    kind: ClassVar[str] = "VirtualMachineBackup"


class VirtualMachineBackupTracker(_Idle, kw_only=True):
    """Which backup of a machine the next one is a continuation of."""

    api_version: ClassVar[str] = f"{BACKUP}/v1alpha1"
    kind: ClassVar[str] = "VirtualMachineBackupTracker"


class StorageProfile(_Idle, kw_only=True):
    """What volumes of a class can do, and how claims for disks ask for them."""

    api_version: ClassVar[str] = f"{CDI_GROUP}/v1beta1"
    kind: ClassVar[str] = "StorageProfile"


class CDI(_Idle, kw_only=True):
    """The installation of what imports disks."""

    api_version: ClassVar[str] = f"{CDI_GROUP}/v1beta1"
    kind: ClassVar[str] = "CDI"


def _refused(name: str, why: str) -> Callable[[Document, Document | None, str], Verdict]:
    cause = Cause("kind", f"{why}: nothing would act on this {name}", "FieldValueNotSupported")

    def validate(_document: Document, old: Document | None, _user: str) -> Verdict:
        return Verdict([cause] if old is None else [])

    return validate


def _warned(name: str, why: str) -> Callable[[Document, Document | None, str], Verdict]:
    warning = f"{why}: nothing acts on this {name}"
    return lambda _document, _old, _user: Verdict(warnings=[warning])


def _order(
    view: type[_Idle],
    plural: str,
    short: str,
    *columns: Column,
    why: str,
    webhook: str | tuple[str, str] = "",
    versions: tuple[Version, ...] = (),
) -> Kind:
    """The row of a kind that is refused; the stored version is that of the view."""
    group, version = view.api_version.split("/")
    hooks = (webhook, webhook) if isinstance(webhook, str) else webhook
    return Kind(
        group=group,
        plural=plural,
        short=(short, f"{short}s"),
        categories=("all",),
        versions=(Version(name=version), *versions),
        view=view,
        columns=columns,
        validate=_refused(view.kind, why),
        webhook=Webhook(*hooks) if webhook else None,
    )


def _truth(name: str, *path: str, description: str) -> Column:
    return Column(name=name, type="boolean", cell=value(*path), description=description)


def _time(name: str, *path: str, description: str) -> Column:
    return Column(name=name, type="date", cell=value(*path), description=description)


_OLD: Final = (Version(name="v1alpha1"),)
_PHASE: Final = field("Phase", "status", "phase", description="how far it is")
_SOURCE: Final = (
    field("SourceKind", "spec", "source", "kind", description="what kind it is about"),
    field("SourceName", "spec", "source", "name", description="which one it is about"),
)
_READY: Final = (
    _truth("ReadyToUse", "status", "readyToUse", description="whether it can be used"),
    _time("CreationTime", "status", "creationTime", description="when it was taken"),
    field("Error", "status", "error", "message", description="why it failed"),
)

_ORDERS = (
    _order(
        VirtualMachineInstanceMigration,
        "virtualmachineinstancemigrations",
        "vmim",
        field("Phase", "status", "phase", description="how far the migration is"),
        field("VMI", "spec", "vmiName", description="the machine that moves"),
        why=_ONE_HOST,
        webhook=(f"migration-create-validator.{GROUP}", f"migration-update-validator.{GROUP}"),
        versions=(Version(name="v1alpha3", deprecated=True),),
    ),
    _order(
        VirtualMachineSnapshot,
        "virtualmachinesnapshots",
        "vmsnapshot",
        *_SOURCE,
        _PHASE,
        *_READY,
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinesnapshot-validator.{SNAPSHOT}",
        versions=_OLD,
    ),
    _order(
        VirtualMachineSnapshotContent,
        "virtualmachinesnapshotcontents",
        "vmsnapshotcontent",
        *_READY,
        why=_NO_SNAPSHOTS,
        versions=_OLD,
    ),
    _order(
        VirtualMachineRestore,
        "virtualmachinerestores",
        "vmrestore",
        field("TargetKind", "spec", "target", "kind", description="what kind is restored"),
        field("TargetName", "spec", "target", "name", description="which one is restored"),
        _truth("Complete", "status", "complete", description="whether that is done"),
        _time("RestoreTime", "status", "restoreTime", description="when it was done"),
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinerestore-validator.{SNAPSHOT}",
        versions=_OLD,
    ),
    _order(
        VirtualMachineExport,
        "virtualmachineexports",
        "vmexport",
        *_SOURCE,
        _PHASE,
        why=_NO_EXPORTS,
        webhook=f"virtualmachineexport-validator.{EXPORT}",
        versions=(Version(name="v1"),),
    ),
    _order(
        VirtualMachineClone,
        "virtualmachineclones",
        "vmclone",
        _PHASE,
        field("SourceVirtualMachine", "spec", "source", "name", description="what is cloned"),
        field("TargetVirtualMachine", "spec", "target", "name", description="the second one"),
        why=_NO_CLONES,
        webhook=f"vm-clone-validator.{GROUP}",
        versions=_OLD,
    ),
    _order(
        VirtualMachineBackup,
        "virtualmachinebackups",
        "vmbackup",
        *_SOURCE,
        field("Type", "status", "type", description="whether all or what has changed is copied"),
        field("CheckpointName", "status", "checkpointName", description="what the next goes by"),
        why=_NO_BACKUPS,
        webhook=f"virtualmachinebackup-validator.{BACKUP}",
    ),
    _order(
        VirtualMachineBackupTracker,
        "virtualmachinebackuptrackers",
        "vmbackuptracker",
        *_SOURCE,
        field(
            "LatestCheckpoint",
            *("status", "latestCheckpoint", "name"),
            description="what the next backup goes by",
        ),
        _time(
            "CheckpointTime",
            *("status", "latestCheckpoint", "creationTime"),
            description="when that was taken",
        ),
        why=_NO_BACKUPS,
        webhook=f"virtualmachinebackuptracker-validator.{BACKUP}",
    ),
)
"""What is refused."""

_SETTINGS = (
    Kind(
        group=GROUP,
        plural="virtualmachineinstancepresets",
        short=("vmipreset", "vmipresets"),
        categories=("all",),
        versions=(Version(name="v1"), Version(name="v1alpha3")),
        view=VirtualMachineInstancePreset,
        status=False,
        columns=(age(),),
        validate=_warned(VirtualMachineInstancePreset.kind, "corral has no presets of machines"),
    ),
    Kind(
        group=MIGRATIONS,
        plural="migrationpolicies",
        versions=(Version(name="v1alpha1"),),
        view=MigrationPolicy,
        namespaced=False,
        columns=(age(),),
        validate=_warned(MigrationPolicy.kind, _ONE_HOST),
    ),
    Kind(
        group=CDI_GROUP,
        plural="storageprofiles",
        versions=(Version(name="v1beta1"),),
        view=StorageProfile,
        namespaced=False,
        columns=(age(),),
        validate=_warned(StorageProfile.kind, _MAKES_VOLUMES),
    ),
    Kind(
        group=CDI_GROUP,
        plural="cdis",
        short=("cdi", "cdis"),
        versions=(Version(name="v1beta1"),),
        view=CDI,
        namespaced=False,
        columns=(age(), _PHASE),
        validate=_warned(CDI.kind, "corral imports disks itself"),
    ),
)
"""What is kept, with a warning."""

KINDS = (*_ORDERS, *_SETTINGS)
