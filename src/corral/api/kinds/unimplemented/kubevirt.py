"""KubeVirt's and CDI's kinds on which nothing here acts yet.

Those by which something is ordered (move this machine, take a snapshot of it) are refused when they
are made, as KubeVirt refuses them while the feature gate is off: an object of theirs that nobody
acts on would look like work under way, and whoever waits for it would wait for ever.  Those that
say how things shall be are kept, with a warning.  Clients that list or watch any of them find none.
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
MIGRATIONS: Final = "migrations.kubevirt.io"

_ONE_HOST: Final = "all machines of corral are on one host, and none is moved"
_NO_SNAPSHOTS: Final = "corral takes no snapshots of machines in this version"
_NO_BACKUPS: Final = "corral makes no backups of machines in this version"
_NO_EXPORTS: Final = "corral exports no disks in this version"
_NO_CLONES: Final = "corral clones disks by DataVolumes, and no whole machines in this version"
_MAKES_VOLUMES: Final = "corral makes volumes itself, in its own way"


class _Spec(Object, kw_only=True):
    """An object on which nothing acts, and which has no status.

    spec: what is asked for.
    """

    spec: AnyFields = msgspec.field(default_factory=dict)


class _SpecAndStatus(_Spec, kw_only=True):
    """An object on which nothing acts.

    status: what has come of it.
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
    """A row.

    ``api_version`` is stored, and ``others`` are served beside it.  ``about`` is what the served
    OpenAPI says of the kind.
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


def _order(
    name: str,
    api_version: str,
    about: str,
    short: str,
    *columns: Column,
    why: str,
    webhook: str | tuple[str, str] = "",
    others: tuple[Version, ...] = (),
) -> Kind:
    """The row of a kind that is refused when it is created."""
    cause = Cause("kind", f"{why}: nothing would act on this {name}", "FieldValueNotSupported")
    hooks = (webhook, webhook) if isinstance(webhook, str) else webhook

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
        webhook=Webhook(*hooks) if webhook else None,
        others=others,
    )


def _warned(name: str, why: str) -> Callable[[Document, Document | None, str], Verdict]:
    warning = f"{why}: nothing acts on this {name}"
    return lambda _document, _old, _user: Verdict(warnings=[warning])


_OLD: Final = (Version(name="v1alpha1"),)
_PHASE: Final = field("Phase", "status", "phase", description="how far it is")
_SOURCE: Final = (
    field("SourceKind", "spec", "source", "kind", description="what kind it is about"),
    field("SourceName", "spec", "source", "name", description="which one it is about"),
)
_READY: Final = (
    truth("ReadyToUse", "status", "readyToUse", description="whether it can be used"),
    time("CreationTime", "status", "creationTime", description="when it was taken"),
    field("Error", "status", "error", "message", description="why it failed"),
)

_ORDERS = (
    _order(
        "VirtualMachineInstanceMigration",
        f"{GROUP}/v1",
        "The order to move a running machine to another node.",
        "vmim",
        field("Phase", "status", "phase", description="how far the migration is"),
        field("VMI", "spec", "vmiName", description="the machine that moves"),
        why=_ONE_HOST,
        webhook=(f"migration-create-validator.{GROUP}", f"migration-update-validator.{GROUP}"),
        others=(Version(name="v1alpha3", deprecated=True),),
    ),
    _order(
        "VirtualMachineSnapshot",
        f"{SNAPSHOT}/v1beta1",
        "The order to keep a machine as it is now.",
        "vmsnapshot",
        *_SOURCE,
        _PHASE,
        *_READY,
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinesnapshot-validator.{SNAPSHOT}",
        others=_OLD,
    ),
    _order(
        "VirtualMachineSnapshotContent",
        f"{SNAPSHOT}/v1beta1",
        "What a snapshot consists of.",
        "vmsnapshotcontent",
        *_READY,
        why=_NO_SNAPSHOTS,
        others=_OLD,
    ),
    _order(
        "VirtualMachineRestore",
        f"{SNAPSHOT}/v1beta1",
        "The order to make a machine what it was when a snapshot was taken.",
        "vmrestore",
        field("TargetKind", "spec", "target", "kind", description="what kind is restored"),
        field("TargetName", "spec", "target", "name", description="which one is restored"),
        truth("Complete", "status", "complete", description="whether that is done"),
        time("RestoreTime", "status", "restoreTime", description="when it was done"),
        why=_NO_SNAPSHOTS,
        webhook=f"virtualmachinerestore-validator.{SNAPSHOT}",
        others=_OLD,
    ),
    _order(
        "VirtualMachineExport",
        f"{EXPORT}/v1beta1",
        "The order to offer disks for download.",
        "vmexport",
        *_SOURCE,
        _PHASE,
        why=_NO_EXPORTS,
        webhook=f"virtualmachineexport-validator.{EXPORT}",
        others=(Version(name="v1"),),
    ),
    _order(
        "VirtualMachineClone",
        f"{CLONE}/v1beta1",
        "The order to make a second machine like another, with disks of its own.",
        "vmclone",
        _PHASE,
        field("SourceVirtualMachine", "spec", "source", "name", description="what is cloned"),
        field("TargetVirtualMachine", "spec", "target", "name", description="the second one"),
        why=_NO_CLONES,
        webhook=f"vm-clone-validator.{GROUP}",
        others=_OLD,
    ),
    _order(
        "VirtualMachineBackup",
        f"{BACKUP}/v1alpha1",
        "The order to copy the disks of a running machine.",
        "vmbackup",
        *_SOURCE,
        field("Type", "status", "type", description="whether all or what has changed is copied"),
        field("CheckpointName", "status", "checkpointName", description="what the next goes by"),
        why=_NO_BACKUPS,
        webhook=f"virtualmachinebackup-validator.{BACKUP}",
    ),
    _order(
        "VirtualMachineBackupTracker",
        f"{BACKUP}/v1alpha1",
        "Which backup of a machine the next one is a continuation of.",
        "vmbackuptracker",
        *_SOURCE,
        field(
            "LatestCheckpoint",
            *("status", "latestCheckpoint", "name"),
            description="what the next backup goes by",
        ),
        time(
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
    _kind(
        "VirtualMachineInstancePreset",
        "virtualmachineinstancepresets",
        f"{GROUP}/v1",
        """What machines with certain labels get where they say nothing themselves.

        spec: which machines, and what they get.
        """,
        age(),
        validate=_warned("VirtualMachineInstancePreset", "corral has no presets of machines"),
        short="vmipreset",
        categories=("all",),
        status=False,
        others=(Version(name="v1alpha3"),),
    ),
    _kind(
        "MigrationPolicy",
        "migrationpolicies",
        f"{MIGRATIONS}/v1alpha1",
        "How certain machines are moved.",
        age(),
        validate=_warned("MigrationPolicy", _ONE_HOST),
        namespaced=False,
    ),
    _kind(
        "StorageProfile",
        "storageprofiles",
        f"{CDI_GROUP}/v1beta1",
        "What volumes of a class can do, and how claims for disks ask for them.",
        age(),
        validate=_warned("StorageProfile", _MAKES_VOLUMES),
        namespaced=False,
    ),
    _kind(
        "CDI",
        "cdis",
        f"{CDI_GROUP}/v1beta1",
        "The installation of what imports disks.",
        age(),
        _PHASE,
        validate=_warned("CDI", "corral imports disks itself"),
        short="cdi",
        namespaced=False,
    ),
)
"""What is kept, with a warning."""

KINDS = (*_ORDERS, *_SETTINGS)
