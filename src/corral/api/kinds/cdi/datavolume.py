"""DataVolume: a claim, and the source of its content (CDI's cdi.kubevirt.io/v1beta1)."""

from typing import ClassVar

import msgspec
from lightkube.models.core_v1 import (
    PersistentVolumeClaimSpec,
    TypedLocalObjectReference,
    TypedObjectReference,
    VolumeResourceRequirements,
)
from lightkube.models.meta_v1 import LabelSelector

from corral.api.object import AnyFields, Condition, Object, ObjectMeta, Quantity, Struct

GROUP = "cdi.kubevirt.io"


class HttpSource(Struct, kw_only=True):
    """An image on a web server.

    url: http:// or https://.
    secret_ref: a Secret with the keys accessKeyId and secretKey, the user and the password.
    cert_config_map: a ConfigMap with CA certificates for the server.
    extra_headers: headers to send, each "Name: value".
    secret_extra_headers: Secrets whose values are headers to send.
    checksum: the expected digest, as sha256:HEX, sha512:HEX, sha1:HEX or md5:HEX.
    """

    url: str
    secret_ref: str = ""
    cert_config_map: str = ""
    extra_headers: list[str] = []
    secret_extra_headers: list[str] = []
    checksum: str = ""


class RegistryPlatform(Struct, kw_only=True):
    """The platform of a multi-platform image.

    architecture: e.g. amd64.
    """

    architecture: str = ""


class RegistrySource(Struct, kw_only=True):
    """A disk image that is shipped in a container image.

    url: docker://HOST/NAME:TAG.
    image_stream: an OpenShift ImageStream.
    pull_method: pod or node.
    secret_ref: a Secret with the keys accessKeyId and secretKey, the user and the password.
    cert_config_map: a ConfigMap with CA certificates for the registry.
    platform: the platform of the image.
    """

    url: str | None = None
    image_stream: str | None = None
    pull_method: str | None = None
    secret_ref: str | None = None
    cert_config_map: str | None = None
    platform: RegistryPlatform | None = None

    @property
    def image(self) -> str:
        """The name of the container image."""
        return (self.url or "").partition("://")[2]


class ClaimCopy(Struct, kw_only=True):
    """A copy of another claim.

    namespace: its namespace; the DataVolume's own by default.
    name: the claim.
    """

    name: str
    namespace: str = ""


class UploadSource(Struct, kw_only=True):
    """Content that is sent by ``image-upload``."""


class BlankSource(Struct, kw_only=True):
    """Nothing: an empty disk."""


class Source(Struct, kw_only=True):
    """The source of the content: exactly one of them.

    http: a web server.
    registry: a container image.
    pvc: another claim.
    upload: a client.
    blank: nowhere.
    s3: an S3 bucket.
    gcs: a Google bucket.
    imageio: oVirt.
    vddk: VMware.
    snapshot: a VolumeSnapshot.
    """

    http: HttpSource | None = None
    registry: RegistrySource | None = None
    pvc: ClaimCopy | None = None
    upload: UploadSource | None = None
    blank: BlankSource | None = None
    s3: AnyFields | None = None
    gcs: AnyFields | None = None
    imageio: AnyFields | None = None
    vddk: AnyFields | None = None
    snapshot: AnyFields | None = None


class SourceReference(Struct, kw_only=True):
    """A reference to an object with the source.

    kind: DataSource.
    name: its name.
    namespace: its namespace; the DataVolume's own by default.
    """

    kind: str
    name: str
    namespace: str | None = None


class Storage(Struct, kw_only=True):
    """The claim to create; its storage class defaults what is left out.

    access_modes: ReadWriteOnce and others.
    volume_mode: Filesystem or Block.
    resources: the size, as requests.storage; that of the source by default.
    storage_class_name: the storage class; the default class by default.
    volume_name: a volume to bind to.
    selector: which volumes may be bound.
    data_source: a source for volume populators of Kubernetes.
    data_source_ref: the same, across namespaces.
    """

    access_modes: list[str] = []
    volume_mode: str | None = None
    resources: VolumeResourceRequirements | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    selector: LabelSelector | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None


class DataVolumeSpec(Struct, kw_only=True):
    """Desired state of the DataVolume.

    source: the source of the content: exactly one of them.
    source_ref: a reference to an object with the source.
    pvc: the claim to create, as it is.
    storage: the claim to create; its storage class defaults what is left out.
    priority_class_name: priority class of the importer.
    content_type: kubevirt (a disk) or archive (a tar file that is unpacked).
    checkpoints: stages of a multi-stage import.
    final_checkpoint: whether the last checkpoint completes the import.
    preallocation: whether all of its space is allocated at once.
    """

    source: Source | None = None
    source_ref: SourceReference | None = None
    pvc: PersistentVolumeClaimSpec | None = None
    storage: Storage | None = None
    priority_class_name: str = ""
    content_type: str = ""
    checkpoints: list[AnyFields] = []
    final_checkpoint: bool = False
    preallocation: bool | None = None


class DataVolumeStatus(Struct, kw_only=True):
    """Observed state of the DataVolume.

    claim_name: the claim that it populates.
    phase: Pending, PVCBound, WaitForFirstConsumer, ImportScheduled, ImportInProgress, Succeeded,
    Failed and others.
    progress: progress of the transfer, as 12.34%, or N/A.
    restart_count: how often the transfer was restarted.
    conditions: Bound, Running and Ready.
    """

    claim_name: str = ""
    phase: str = ""
    progress: str = ""
    restart_count: int = 0
    conditions: list["DataVolumeCondition"] = []


class DataVolumeCondition(Condition, kw_only=True):
    """A condition of a DataVolume or a DataSource, with a heartbeat (CDI).

    last_heartbeat_time: when it was last updated.
    """

    last_heartbeat_time: str | None = None


class DataVolume(Object, kw_only=True):
    """A claim, and the source of its content.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "DataVolume"

    spec: DataVolumeSpec
    status: DataVolumeStatus = msgspec.field(default_factory=DataVolumeStatus)


class DataVolumeTemplate(Struct, kw_only=True):
    """The template of a DataVolume of a VirtualMachine.

    metadata: its name, labels and annotations.
    spec: desired state.
    api_version: ignored; old manifests have it.
    kind: ignored; old manifests have it.
    status: ignored; old manifests have it.
    """

    spec: DataVolumeSpec
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    api_version: str = ""
    kind: str = ""
    status: AnyFields | None = None


SIZE = "storage"
"""The resource of a claim that is its size."""
ADOPT_CLAIM = "cdi.kubevirt.io/allowClaimAdoption"
"""Annotation of a DataVolume that adopts an existing claim of its name (CDI)."""


def requested_size(resources: VolumeResourceRequirements | None) -> Quantity | None:
    """Return the size that a claim requests."""
    return ((resources.requests if resources is not None else None) or {}).get(SIZE)
