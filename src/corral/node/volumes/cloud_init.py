"""cloudInitNoCloud and cloudInitConfigDrive: a seed disk for cloud-init.

NoCloud: the label ``cidata`` and the files ``meta-data``, ``user-data`` and ``network-config``.
ConfigDrive: the label ``config-2`` and OpenStack's paths of these files.  All cloud-init volumes of
a machine have the data of the first one (KubeVirt).
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.api.kinds.vmi.access import keys_of
from corral.api.kinds.vmi.derived import host_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import CloudInitSource, ObjectName, Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext, failed

_NO_CLOUD_LABEL, _CONFIG_DRIVE_LABEL = "cidata", "config-2"
_OPENSTACK = "openstack/latest"
_KEYS = {"userData": ("userdata", "userData"), "networkData": ("networkdata", "networkData")}
_INSTANCETYPES = ("kubevirt.io/cluster-instancetype-name", "kubevirt.io/instancetype-name")


@dataclass(frozen=True, slots=True)
class _Data:
    """The possible places of user data or network data; admission allows only one of them."""

    field: str
    text: str
    encoded: str
    secret: ObjectName | None


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Write the disk; secrets are read once, at the machine's start."""
    is_no_cloud = _settings(volume, context).cloud_init_no_cloud is not None
    label = _NO_CLOUD_LABEL if is_no_cloud else _CONFIG_DRIVE_LABEL
    return await seed.prepare(volume, context, label, _files)


def _settings(volume: Volume, context: VolumeContext) -> Volume:
    """Return the first cloud-init volume of the machine."""
    each = (one for one in context.vmi.spec.volumes if _source(one) is not None)
    return next(each, volume)


def _source(volume: Volume) -> CloudInitSource | None:
    return volume.cloud_init_no_cloud or volume.cloud_init_config_drive


async def _files(volume: Volume, context: VolumeContext) -> Files:
    settings = _settings(volume, context)
    source = _source(settings)
    assert source is not None
    user = _Data("userData", source.user_data, source.user_data_base64, source.secret_ref)
    network = _Data(
        "networkData",
        source.network_data,
        source.network_data_base64,
        source.network_data_secret_ref,
    )
    user_data = await _read(settings, user, context)
    network_data = await _read(settings, network, context)
    if not user_data and not network_data:
        raise failed(
            settings,
            f"{_field(settings)} has neither user data nor network data",
            "set userData, userDataBase64, secretRef or one of their networkData counterparts",
        )
    keys = await _public_keys(settings, context)
    if settings.cloud_init_no_cloud is not None:
        files = {"meta-data": no_cloud_metadata(context.vmi, keys), "user-data": user_data}
        return files | ({"network-config": network_data} if network_data else {})
    files = {
        f"{_OPENSTACK}/meta_data.json": config_drive_metadata(context.vmi, keys),
        f"{_OPENSTACK}/user_data": user_data,
    }
    return files | ({f"{_OPENSTACK}/network_data.json": network_data} if network_data else {})


def _field(volume: Volume) -> str:
    no_cloud = volume.cloud_init_no_cloud is not None
    return "cloudInitNoCloud" if no_cloud else "cloudInitConfigDrive"


async def _read(volume: Volume, data: _Data, context: VolumeContext) -> bytes:
    if data.secret and data.secret.name:
        values = await context.secret_of(volume, data.secret.name)
        for key in _KEYS[data.field]:
            if key in values:
                return values[key]
        raise failed(
            volume,
            f'secret "{data.secret.name}" has none of the keys {", ".join(_KEYS[data.field])}',
            f"put the {data.field} under the key {_KEYS[data.field][0]}",
        )
    if data.encoded:
        try:
            return base64.b64decode(data.encoded, validate=True)
        except binascii.Error as error:
            field = f"{_field(volume)}.{data.field}Base64"
            raise failed(volume, f"{field} is not base64: {error}") from error
    return data.text.encode()


async def _public_keys(volume: Volume, context: VolumeContext) -> Mapping[str, str]:
    """Return the SSH keys of access credentials that use this datasource, numbered (KubeVirt)."""
    found: list[str] = []
    for credential in context.vmi.spec.access_credentials:
        key = credential.ssh_public_key
        if key is None or key.source.secret is None:
            continue
        method = key.propagation_method
        is_no_cloud = volume.cloud_init_no_cloud is not None
        if (method.no_cloud if is_no_cloud else method.config_drive) is not None:
            found += keys_of(await context.secret_of(volume, key.source.secret.secret_name))
    return {str(number): key for number, key in enumerate(found)}


def no_cloud_metadata(vmi: VirtualMachineInstance, keys: Mapping[str, str]) -> bytes:
    """Return NoCloud's meta-data; a new instance-id makes cloud-init act as on a first boot."""
    facts = {
        "instance-type": _instance_type(vmi),
        "instance-id": _identity(vmi),
        "local-hostname": host_name(vmi),
        "public-keys": keys,
    }
    return _encoded(facts)


def config_drive_metadata(vmi: VirtualMachineInstance, keys: Mapping[str, str]) -> bytes:
    """Return OpenStack's meta_data.json."""
    metadata = vmi.metadata
    facts = {
        "instance_type": _instance_type(vmi),
        "instance_id": f"{metadata.name}.{metadata.namespace}",
        "local_hostname": host_name(vmi),
        "hostname": host_name(vmi),
        "uuid": _identity(vmi),
        "public_keys": keys,
    }
    return _encoded(facts)


def _identity(vmi: VirtualMachineInstance) -> str:
    firmware = vmi.spec.domain.firmware
    return firmware.uuid if firmware and firmware.uuid else vmi.metadata.uid


def _instance_type(vmi: VirtualMachineInstance) -> str:
    annotations = vmi.metadata.annotations
    return next((annotations[name] for name in _INSTANCETYPES if annotations.get(name)), "")


def _encoded(facts: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({name: value for name, value in facts.items() if value})
