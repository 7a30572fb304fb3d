"""Validation of DataVolumes and DataSources: CDI's webhooks, and sources that are not implemented.

Messages and fields are CDI's where CDI has the rule; its fields have Go's spelling (``spec.PVC``).
CDI stops at the first fault; all faults are returned here.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaimSpec, VolumeResourceRequirements

from corral.api.errors import Cause, limited
from corral.api.kind import Verdict
from corral.api.kinds.causes import invalid
from corral.api.kinds.cdi.datavolume import (
    ClaimCopy,
    DataVolumeSpec,
    HttpSource,
    RegistrySource,
    Source,
    SourceReference,
    Storage,
    requested_size,
)
from corral.api.names import subdomain_faults
from corral.api.object import Document
from corral.api.quantity import ZERO, amount

KUBEVIRT, ARCHIVE = "kubevirt", "archive"
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce")
DATA_SOURCE = "DataSource"
DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
"""Hexadecimal digits of each checksum algorithm."""

_NOT_IMPLEMENTED = {
    "s3": "download the object over its https address, or image-upload it",
    "gcs": "download the object over its https address, or image-upload it",
    "imageio": "export the disk, and image-upload it",
    "vddk": "export the disk, and image-upload it",
    "snapshot": "clone the claim that it was made of",
}
"""Sources of CDI that are not implemented, and what to do instead."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*", re.ASCII)
_PULL_METHODS = ("pod", "node")
_PLATFORM = "amd64"


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a DataVolume; its spec is immutable."""
    if old is not None:
        if document.get("spec") == old.get("spec"):
            return Verdict()
        message = "Cannot update DataVolume Spec"
        return Verdict([Cause("DataVolume.Spec", message, "FieldValueDuplicate")])
    try:
        spec = msgspec.convert(document["spec"], DataVolumeSpec)
    except msgspec.ValidationError as error:
        return Verdict([Cause("spec", f"spec: {error}")])
    return Verdict(limited(check(spec, "spec")), list(_ineffective_field_warnings(spec)))


def validate_reference(document: Document, _old: Document | None, _user: str) -> Verdict:
    """Validate a DataSource: it refers to a claim, to another DataSource, or to nothing yet."""
    source = document["spec"]["source"]
    sources = [name for name in source if source[name] is not None]
    if not sources:
        return Verdict()
    if len(sources) > 1:
        return Verdict(
            [Cause("spec.source", "DataSource should have one source: multiple sources")]
        )
    if other := source.get("dataSource"):
        return Verdict(list(_check_data_source_reference(other, document["metadata"])))
    if sources[0] != "pvc":
        return Verdict(
            [_not_implemented(f"spec.source.{sources[0]}", "name a claim: spec.source.pvc")]
        )
    copied = msgspec.convert(source["pvc"], ClaimCopy)
    return Verdict(list(_check_copy(copied, "spec.source.PVC")))


def _check_data_source_reference(other: Document, metadata: Document) -> Iterator[Cause]:
    """Check a reference to another DataSource; CDI reports these faults in the status only."""
    namespace = other.get("namespace") or metadata.get("namespace")
    if namespace != metadata.get("namespace"):
        message = "DataSource cannot reference a DataSource in another namespace"
        yield Cause("spec.source.dataSource.namespace", message)
    elif not other["name"]:
        message = "Required value: name the DataSource that it means, or leave spec.source empty"
        yield Cause("spec.source.dataSource.name", message, "FieldValueRequired")
    elif other["name"] == metadata.get("name"):
        yield Cause("spec.source.dataSource.name", "DataSource cannot self-reference")


def check(spec: DataVolumeSpec, path: str) -> Iterator[Cause]:
    """Check the spec of a DataVolume or of a template."""
    yield from _check_claim(spec, path)
    yield from _check_source(spec, path)
    yield from _check_content(spec, path)


# --------------------------------------------------------------------- claim


def _check_claim(spec: DataVolumeSpec, path: str) -> Iterator[Cause]:
    if spec.pvc is not None and spec.storage is not None:
        message = "Duplicate storage definition, both target storage and target pvc defined"
        yield Cause(f"{path}.PVC.Storage", message)
    elif spec.pvc is not None:
        yield from _check_size(spec.pvc.resources, f"{path}.PVC", "PVC")
        yield from _check_modes_of_claim(spec.pvc, f"{path}.PVC")
    elif spec.storage is not None:
        if requested_size(spec.storage.resources) is not None or not _is_copy(spec):
            yield from _check_size(spec.storage.resources, f"{path}.Storage", "Storage")
        yield from _check_modes(spec.storage, f"{path}.Storage")
    else:
        yield Cause(f"{path}.PVC", "Missing Data volume PVC")


def _is_copy(spec: DataVolumeSpec) -> bool:
    """Return whether the size can default to that of another claim."""
    return spec.source_ref is not None or (spec.source is not None and spec.source.pvc is not None)


def _check_size(
    resources: VolumeResourceRequirements | None, path: str, name: str
) -> Iterator[Cause]:
    size = requested_size(resources)
    if size is None:
        yield Cause(f"{path}.resources.requests.size", f"{name} size is missing")
    elif amount(size) <= ZERO:
        message = f"{name} size can't be equal or less than zero"
        yield Cause(f"{path}.resources.requests.size", message)


def _check_modes_of_claim(claim: PersistentVolumeClaimSpec, path: str) -> Iterator[Cause]:
    modes = claim.accessModes or []
    if not modes:
        message = "Required value: at least 1 access mode is required"
        yield Cause(f"{path}.accessModes", message)
    elif len(modes) > 1:
        yield Cause(f"{path}.accessModes", "PVC multiple accessModes")
    else:
        yield from _check_supported_modes(modes, f"{path}.accessModes")


def _check_modes(storage: Storage, path: str) -> Iterator[Cause]:
    yield from _check_supported_modes(storage.access_modes, f"{path}.accessModes")
    if storage.volume_mode not in (None, "Filesystem", "Block"):
        supported = 'supported values: "Block", "Filesystem"'
        message = f'Unsupported value: "{storage.volume_mode}": {supported}'
        yield Cause(f"{path}.volumeMode", message)


def _check_supported_modes(modes: list[str], path: str) -> Iterator[Cause]:
    supported = ", ".join(f'"{mode}"' for mode in ACCESS_MODES)
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield Cause(path, f'Unsupported value: "{mode}": supported values: {supported}')


# -------------------------------------------------------------------- source


def _check_source(spec: DataVolumeSpec, path: str) -> Iterator[Cause]:
    if (spec.source is None) == (spec.source_ref is None):
        message = "Data volume should have either Source or SourceRef"
        yield Cause(f"{path}.source", message)
    elif spec.source_ref is not None:
        yield from _check_reference(spec.source_ref, f"{path}.sourceRef")
    elif spec.source is not None:
        yield from _check_one_source(spec.source, path)


def _check_reference(reference: SourceReference, path: str) -> Iterator[Cause]:
    if not reference.kind:
        yield Cause(f"{path}.Kind", "Missing sourceRef kind")
    elif reference.kind != DATA_SOURCE:
        only = f"currently only {DATA_SOURCE} is supported"
        yield Cause(f"{path}.Kind", f"Unsupported sourceRef kind {reference.kind}, {only}")
    if not reference.name:
        yield Cause(f"{path}.Name", "Missing sourceRef name")


def _check_one_source(source: Source, path: str) -> Iterator[Cause]:
    names = [name for name in source.__struct_fields__ if getattr(source, name) is not None]
    if len(names) != 1:
        which = "Multiple Data volume sources" if names else "Missing Data volume source"
        yield Cause(f"{path}.source", which)
        return
    if names[0] in _NOT_IMPLEMENTED:
        yield _not_implemented(f"{path}.source.{names[0]}", _NOT_IMPLEMENTED[names[0]])
    if source.http is not None:
        yield from _check_http(source.http, f"{path}.source")
    if source.registry is not None:
        yield from _check_registry(source.registry, f"{path}.source.Registry")
    if source.pvc is not None:
        yield from _check_copy(source.pvc, f"{path}.source.PVC")


def _check_http(http: HttpSource, path: str) -> Iterator[Cause]:
    if fault := _address_fault(http.url):
        yield Cause(f"{path}.HTTP.url", f"{path} {fault}")
    name, _, digits = http.checksum.partition(":")
    if http.checksum and not (
        name in DIGITS and re.fullmatch(f"[0-9a-fA-F]{{{DIGITS[name]}}}", digits, re.ASCII)
    ):
        formats = ", ".join(
            f"{each}:<{count} hexadecimal digits>" for each, count in DIGITS.items()
        )
        yield invalid(f"{path}.http.checksum", http.checksum, f"must be one of {formats}")
    for index, header in enumerate(http.extra_headers):
        if not _HEADER.fullmatch(header):
            where = f"{path}.http.extraHeaders[{index}]"
            yield invalid(where, header, 'must be a header as "Name: value"')


def _address_fault(url: str) -> str:
    """Return what is wrong with the URL of an image, in CDI's words; empty if it is valid.

    User and password in the URL are refused: everyone who may read PVCs would see them.
    """
    if not url:
        return "source URL is empty"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"Invalid source URL: {url}"
    if parts.scheme and parts.scheme not in ("http", "https"):
        return f"Invalid source URL scheme: {url}"
    if not parts.scheme or not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        return f"Invalid source URL: {url}"
    if parts.username is not None or parts.password is not None:
        return "source URL holds a user or password; put them into a Secret and name it: secretRef"
    return ""


def _check_registry(registry: RegistrySource, path: str) -> Iterator[Cause]:
    if registry.image_stream is not None:
        yield _not_implemented(
            f"{path}.imageStream", "name the image in url, as docker://HOST/NAME:TAG"
        )
        return
    url = registry.url or ""
    scheme, mark, reference = url.partition("://")
    if not mark or scheme != "docker":
        message = f"Illegal registry source URL scheme {url}"
        if scheme == "oci-archive":
            message += " is not supported by this version: use docker://HOST/NAME:TAG"
        yield Cause(f"{path}.URL", message)
    elif not reference or not reference.isprintable() or " " in reference:
        yield Cause(f"{path}.URL", f"Illegal registry source URL {url}")
    if registry.cert_config_map:
        instead = "let the host trust the authority"
        yield _not_implemented(f"{path}.certConfigMap", instead)
    if registry.platform is not None and registry.platform.architecture not in ("", _PLATFORM):
        yield _not_implemented(f"{path}.platform.architecture", f"guests are {_PLATFORM}")
    method = registry.pull_method
    if method and method not in _PULL_METHODS:
        message = f'ImportMethod {method} is neither {_PULL_METHODS[0]}, {_PULL_METHODS[1]} or ""'
        yield Cause(f"{path}.importMethod", message)


def _check_copy(copy: ClaimCopy, path: str) -> Iterator[Cause]:
    if not copy.name or subdomain_faults(copy.name):
        yield Cause(path, f"{path} source PVC is not valid")


# ------------------------------------------------------------------- content


def _check_content(spec: DataVolumeSpec, path: str) -> Iterator[Cause]:
    here = f"{path}.contentType"
    if spec.content_type not in ("", KUBEVIRT, ARCHIVE):
        yield Cause(here, f"ContentType not one of: {KUBEVIRT}, {ARCHIVE}")
    elif spec.content_type == ARCHIVE:
        source = spec.source or Source()
        if source.blank is not None:
            yield Cause(here, "SourceType cannot be blank and the contentType be archive")
        elif source.registry is not None:
            yield Cause(here, f"ContentType must be {KUBEVIRT} when Source is Registry")
        else:
            yield _not_implemented(here, "machines have disks: give the image of one")
    if spec.checkpoints or spec.final_checkpoint:
        yield _not_implemented(f"{path}.checkpoints", "import the disk in one piece")


def _not_implemented(path: str, instead: str) -> Cause:
    message = f"{path} is not supported by this version: {instead}"
    return Cause(path, message, "FieldValueNotSupported")


def _ineffective_field_warnings(spec: DataVolumeSpec) -> Iterator[str]:
    registry = (spec.source or Source()).registry
    for path, is_set in (
        ("spec.priorityClassName", bool(spec.priority_class_name)),
        ("spec.preallocation", bool(spec.preallocation)),
        ("spec.source.registry.pullMethod", bool(registry and registry.pull_method)),
    ):
        if is_set:
            yield f"{path} has no effect in this version"
