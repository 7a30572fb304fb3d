"""serviceAccount: a disk with a ServiceAccount's token, namespace and ca.crt, as pods have them.

The token is bound to the machine's pod, and valid as long as that exists.
"""

from corral.api.errors import NotFound
from corral.api.kinds.vmi.referenced_objects import AUTHORITY
from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.config_map import LABEL
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext, failed


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    return await seed.prepare(volume, context, LABEL, _files)


async def _files(volume: Volume, context: VolumeContext) -> Files:
    source = volume.service_account
    assert source is not None
    name, namespace = source.service_account_name, context.vmi.metadata.namespace
    try:
        token = await context.token(name)
    except NotFound as error:
        hint = f"create it in the namespace {namespace}"
        raise failed(volume, f'serviceaccount "{name}" not found', hint) from error
    authority = await context.config_map_of(volume, AUTHORITY)
    return {
        "token": token,
        "namespace": namespace.encode(),
        "ca.crt": authority.get("ca.crt", b""),
    }
