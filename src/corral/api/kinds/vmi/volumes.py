"""Volumes of a VMI: a Volume has one optional field for each source."""

from collections.abc import Iterable

import msgspec
from lightkube.models.core_v1 import DownwardAPIVolumeFile

from corral.api.object import Quantity, Struct


class ObjectName(Struct, kw_only=True):
    """Names an object of the same namespace (core/v1 LocalObjectReference).

    name: its name.
    """

    name: str = ""


class ContainerDisk(Struct, kw_only=True):
    """A disk image that is shipped in a container image; what the guest writes is not kept.

    image: the container image, e.g. quay.io/kubevirt/cirros-container-disk-demo.
    image_pull_secret: name of a Secret with the registry's credentials.
    path: the disk's file inside the image; without it the only file below /disk.
    image_pull_policy: Always, IfNotPresent or Never; Always when the tag is latest or absent.
    """

    image: str
    image_pull_secret: str = ""
    path: str = ""
    image_pull_policy: str = ""


class CloudInitSource(Struct, kw_only=True):
    """First-boot settings for cloud-init.

    secret_ref: a Secret whose key userdata holds the user data.
    user_data_base64: the user data, base64, 2048 bytes at most.
    user_data: the user data as text, 2048 bytes at most.
    network_data_secret_ref: a Secret whose key networkdata holds the network settings.
    network_data_base64: the network settings, base64.
    network_data: the network settings as text.
    """

    secret_ref: ObjectName | None = None
    user_data_base64: str = ""
    user_data: str = ""
    network_data_secret_ref: ObjectName | None = None
    network_data_base64: str = ""
    network_data: str = ""


class CloudInitNoCloud(CloudInitSource, kw_only=True):
    """A small disk with the first-boot settings that cloud-init reads (datasource NoCloud)."""


class CloudInitConfigDrive(CloudInitSource, kw_only=True):
    """A small disk with first-boot settings in OpenStack's form (datasource ConfigDrive)."""


class EmptyDisk(Struct, kw_only=True):
    """A blank disk that lives as long as the VMI.

    capacity: size of the disk, e.g. 2Gi.
    """

    capacity: Quantity


class HostDisk(Struct, kw_only=True):
    """A disk image in the node's own file system.

    path: the file on the node.
    type: Disk when the file must exist, DiskOrCreate when it may be made.
    capacity: size of a file that is made.
    shared: true when the path is the same file on every node.
    """

    path: str
    type: str
    capacity: Quantity | None = None
    shared: bool | None = None


class ClaimSource(Struct, kw_only=True):
    """Names a PersistentVolumeClaim of the same namespace.

    claim_name: the claim.
    read_only: whether it is mounted read-only.
    """

    claim_name: str
    read_only: bool = False


class PersistentVolumeClaimVolume(ClaimSource, kw_only=True):
    """A disk that is kept in a PersistentVolumeClaim.

    hotpluggable: whether it may be added and removed while the machine runs.
    """

    hotpluggable: bool = False


class DataVolumeVolume(Struct, kw_only=True):
    """A disk that a DataVolume fills.

    name: the DataVolume, and its claim.
    hotpluggable: whether it may be added and removed while the machine runs.
    """

    name: str
    hotpluggable: bool = False


class EphemeralVolume(Struct, kw_only=True):
    """A temporary overlay over a claim, which is only read.

    persistent_volume_claim: the claim below the overlay.
    """

    persistent_volume_claim: ClaimSource | None = None


class ConfigMapVolume(Struct, kw_only=True):
    """A disk with one file a key of a ConfigMap.

    name: the ConfigMap.
    optional: whether the machine may start without it.
    volume_label: label of the file system on the disk.
    """

    name: str = ""
    optional: bool | None = None
    volume_label: str = ""


class SecretVolume(Struct, kw_only=True):
    """A disk with one file a key of a Secret.

    secret_name: the Secret.
    optional: whether the machine may start without it.
    volume_label: label of the file system on the disk.
    """

    secret_name: str = ""
    optional: bool | None = None
    volume_label: str = ""


class DownwardApiVolume(Struct, kw_only=True):
    """A disk with metadata of the VMI's pod.

    fields: the metadata field of each file.
    volume_label: label of the file system on the disk.
    """

    fields: list[DownwardAPIVolumeFile] = []
    volume_label: str = ""


class ServiceAccountVolume(Struct, kw_only=True):
    """A disk with the token of a ServiceAccount; at most one a machine.

    service_account_name: the ServiceAccount.
    """

    service_account_name: str = ""


class DownwardMetricsVolume(Struct, kw_only=True):
    """A small disk with metrics of the host, in vhostmd's format."""


class SysprepVolume(Struct, kw_only=True):
    """A disk with the answer file of an unattended Windows installation.

    secret: a Secret that holds the file.
    config_map: a ConfigMap that holds the file.
    """

    secret: ObjectName | None = None
    config_map: ObjectName | None = None


class MemoryDumpVolume(PersistentVolumeClaimVolume, kw_only=True):
    """A claim that receives a dump of the machine's memory."""


class ContainerPathVolume(Struct, kw_only=True):
    """A path of the launcher's container, shared with the guest.

    path: the path in the container.
    read_only: whether the guest may only read it.
    """

    path: str
    read_only: bool | None = None


class Volume(Struct, kw_only=True):
    """A volume of the VMI: a name and exactly one source.

    name: unique in the machine; the disk of the same name shows it to the guest.
    container_disk: a disk image out of a container image.
    cloud_init_no_cloud: first-boot settings, datasource NoCloud.
    cloud_init_config_drive: first-boot settings, datasource ConfigDrive.
    empty_disk: a blank disk that lives as long as the VMI.
    ephemeral: a temporary overlay over a claim.
    persistent_volume_claim: a disk that is kept in a claim.
    data_volume: a disk that a DataVolume fills.
    host_disk: a disk image in the node's file system.
    config_map: a disk with the keys of a ConfigMap.
    secret: a disk with the keys of a Secret.
    downward_api: a disk with metadata of the VMI's pod.
    service_account: a disk with a ServiceAccount's token.
    downward_metrics: a small disk with metrics of the host.
    sysprep: a disk with a Windows answer file.
    memory_dump: a claim that receives a memory dump.
    container_path: a path of the launcher's container.
    """

    name: str
    container_disk: ContainerDisk | None = None
    cloud_init_no_cloud: CloudInitNoCloud | None = None
    cloud_init_config_drive: CloudInitConfigDrive | None = None
    empty_disk: EmptyDisk | None = None
    ephemeral: EphemeralVolume | None = None
    persistent_volume_claim: PersistentVolumeClaimVolume | None = None
    data_volume: DataVolumeVolume | None = None
    host_disk: HostDisk | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardApiVolume | None = msgspec.field(default=None, name="downwardAPI")
    service_account: ServiceAccountVolume | None = None
    downward_metrics: DownwardMetricsVolume | None = None
    sysprep: SysprepVolume | None = None
    memory_dump: MemoryDumpVolume | None = None
    container_path: ContainerPathVolume | None = None


class UtilityVolume(ClaimSource, kw_only=True):
    """A claim that is given to the launcher without a disk in the machine.

    name: unique among all volumes of the machine.
    type: MemoryDump or Backup.
    """

    name: str
    type: str | None = None


def claims_of(volumes: Iterable[Volume]) -> dict[str, str]:
    """Return the claim of each volume that has one, by the volume's name.

    The claim of a DataVolume has its name (CDI).
    """
    claims: dict[str, str] = {}
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            claims[volume.name] = volume.persistent_volume_claim.claim_name
        elif volume.data_volume is not None:
            claims[volume.name] = volume.data_volume.name
        elif volume.ephemeral is not None and volume.ephemeral.persistent_volume_claim is not None:
            claims[volume.name] = volume.ephemeral.persistent_volume_claim.claim_name
    return claims
