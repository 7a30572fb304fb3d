"""The options of ``corral image-upload``, validated, and the object to create.  No I/O."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.api.kinds.cdi import population
from corral.api.object import Document
from corral.cli.errors import Problem

_FORCE_BIND: Final = "cdi.kubevirt.io/storage.bind.immediate.requested"
_MODES: Final = {"block": "Block", "filesystem": "Filesystem"}
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i?|k|m)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """The flags of an upload; an empty text means unset."""

    name: str
    claim_only: bool
    size: str
    image: Path
    storage_class: str = ""
    access_mode: str = ""
    volume_mode: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    force_bind: bool = False

    @property
    def kind(self) -> str:
        """Kubectl's short name of the object to create or upload into."""
        return "pvc" if self.claim_only else "dv"


def read(arguments: tuple[str, ...], flags: dict[str, Any]) -> UploadOptions:
    """Validate arguments and flags.  Raises Problem with virtctl's messages."""
    if flags["pvc_name"]:
        if arguments:
            raise Problem("cannot use --pvc-name and args")
        arguments = ("pvc", flags["pvc_name"])
    if len(arguments) != 2:
        raise Problem("expecting two args", "corral image-upload dv NAME --size … --image-path …")
    type_, name = arguments
    if type_.lower() not in ("dv", "pvc"):
        raise Problem(f"invalid resource type {type_}", "Write dv or pvc.")
    if flags["archive_path"]:
        raise Problem(
            "--archive-path is not supported by this version",
            "Machines have disks: upload the image of one with --image-path.",
        )
    if flags["image_path"] is None:
        raise Problem('required flag(s) "image-path" not set')
    if flags["size"] and not _SIZE.fullmatch(flags["size"]):
        raise Problem(f"validation failed for size={flags['size']}", "Write e.g. 10Gi or 500Mi.")
    if flags["access_mode"] == "ReadOnlyMany":
        raise Problem(
            "cannot upload to a readonly volume, use either ReadWriteOnce or ReadWriteMany if "
            "supported"
        )
    mode = "block" if flags["block_volume"] else flags["volume_mode"].lower()
    if mode and mode not in _MODES:
        raise Problem(f"Invalid volume mode '{flags['volume_mode']}'", "Write block or filesystem.")
    return UploadOptions(
        name=name,
        claim_only=type_.lower() == "pvc",
        size=flags["size"],
        image=flags["image_path"],
        storage_class=flags["storage_class"],
        access_mode=flags["access_mode"],
        volume_mode=_MODES.get(mode, ""),
        labels=_labels(flags),
        force_bind=flags["force_bind"],
    )


def _labels(flags: dict[str, Any]) -> dict[str, str]:
    labels = {}
    for default in ("instancetype", "preference"):
        name, kind = flags[f"default_{default}"], flags[f"default_{default}_kind"]
        if kind and not name:
            flag = f"--default-{default}"
            raise Problem(f"{flag} must be provided with {flag}-kind")
        if name and flags["no_create"]:
            raise Problem(
                "--default-instancetype and --default-preference cannot be used with --no-create"
            )
        if name:
            labels[f"instancetype.kubevirt.io/default-{default}"] = name
            labels[f"instancetype.kubevirt.io/default-{default}-kind"] = (
                kind or f"VirtualMachineCluster{default.capitalize()}"
            )
    return labels


def document_for(request: UploadOptions) -> Document:
    """Return the DataVolume or the claim to create."""
    claim: Document = {"resources": {"requests": {"storage": request.size}}}
    if request.storage_class:
        claim["storageClassName"] = request.storage_class
    if request.access_mode or request.claim_only:
        claim["accessModes"] = [request.access_mode or "ReadWriteOnce"]
    if request.volume_mode:
        claim["volumeMode"] = request.volume_mode
    annotations = {_FORCE_BIND: ""} if request.force_bind else {}
    if request.claim_only:
        annotations[population.UPLOAD_TARGET] = ""
    return {
        "metadata": {
            "name": request.name,
            "annotations": annotations,
            "labels": request.labels,
        },
        "spec": claim if request.claim_only else {"source": {"upload": {}}, "storage": claim},
    }
