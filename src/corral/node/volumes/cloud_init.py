"""cloudInitNoCloud: a small disk with the settings of the first boot.

The disk is what cloud-init's NoCloud datasource looks for: the label ``cidata`` and the files
``meta-data``, ``user-data`` and ``network-config``.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from corral.api.kinds.machine import host_name
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.api.kinds.volumes import CloudInitNoCloud, ObjectName, Volume
from corral.node.volumes import seed
from corral.node.volumes.source import Disk, VolumeContext, failed

_LABEL = "cidata"
_KEYS = {"userData": ("userdata", "userData"), "networkData": ("networkdata", "networkData")}


@dataclass(frozen=True, slots=True)
class _Data:
    """Where one of the two kinds of data may be; admission sees to it that it is in one place."""

    field: str
    text: str
    encoded: str
    secret: ObjectName | None


async def prepare(volume: Volume, context: VolumeContext) -> Disk:
    """Write the disk; what the secrets hold is read once, at the machine's start."""
    source = volume.cloud_init_no_cloud
    assert source is not None
    path = context.file(f"{volume.name}.iso")
    if not path.exists():
        seed.write(path, _LABEL, await _files(volume, source, context))
    return Disk(volume=volume.name, path=path, format="raw")


async def _files(
    volume: Volume, source: CloudInitNoCloud, context: VolumeContext
) -> Mapping[str, bytes]:
    user_data = await _read(
        volume,
        _Data("userData", source.user_data, source.user_data_base64, source.secret_ref),
        context,
    )
    network_data = await _read(
        volume,
        _Data(
            "networkData",
            source.network_data,
            source.network_data_base64,
            source.network_data_secret_ref,
        ),
        context,
    )
    if not user_data and not network_data:
        raise failed(
            volume,
            "cloudInitNoCloud has neither user data nor network data",
            "set userData, userDataBase64, secretRef or one of their networkData counterparts",
        )
    files = {"meta-data": meta_data(context.vmi), "user-data": user_data}
    return files | ({"network-config": network_data} if network_data else {})


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
            field = f"cloudInitNoCloud.{data.field}Base64"
            raise failed(volume, f"{field} is not base64: {error}") from error
    return data.text.encode()


def meta_data(vmi: VirtualMachineInstance) -> bytes:
    """Who the machine is; a new instance-id is what makes cloud-init act as on a first boot."""
    firmware = vmi.spec.domain.firmware
    identity = firmware.uuid if firmware and firmware.uuid else vmi.metadata.uid
    facts = {"instance-id": identity, "local-hostname": host_name(vmi)}
    return msgspec.json.encode(facts)
