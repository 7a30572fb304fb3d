"""Dependencies of a machine: its drives, and the objects of the API that they are made of."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from lightkube.models.core_v1 import ConfigMap, Pod, Secret

from corral.api.kinds.vmi.hotplug import hotplug_disks, with_only_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.client.client import Client
from corral.client.tokens import token_of
from corral.node.hypervisor import Drive
from corral.node.images import Credential, SecretName, from_secret
from corral.node.images.store import ImageStore
from corral.node.machine import drives
from corral.node.machine.drives import DriveError
from corral.node.machine.lifecycle import Machine
from corral.node.state.machine_record import Record
from corral.node.storage import Storage
from corral.node.storage.claim_volumes import Claims
from corral.node.volumes import VolumeContext
from corral.reconcile.objects import uid_of

TOKEN_SECONDS = 365 * 86400
"""Lifetime of a ServiceAccount token on a disk, while its pod exists: nothing renews it there."""


class Dependencies:
    """Provides the drives of a node's machines.

    ``host_disks``: the directory whose files machines may have as disks; ``needed``: whether the
    hypervisor opens drives at all.
    """

    def __init__(
        self,
        client: Client,
        images: ImageStore,
        storages: Sequence[Storage] = (),
        host_disks: Path | None = None,
        *,
        needed: bool,
    ) -> None:
        self._client = client
        self._claims = Claims(client, storages)
        self._images = images
        self._host_disks = host_disks
        self._needed = needed

    async def at_start(
        self, machine: Machine, vmi: VirtualMachineInstance | None
    ) -> Mapping[str, Drive]:
        """Return the drives that a machine starts with.  Raises DriveError.

        A hotplugged disk that cannot be prepared is left out; it is plugged in later.
        """
        if vmi is None:
            return {}
        plugs = hotplug_disks(vmi.spec)
        disks = [one for one in vmi.spec.domain.devices.disks if one.name not in plugs]
        prepared = dict(await self.drives(machine, with_only_disks(vmi, disks)))
        for plug in plugs.values():
            with suppress(DriveError):
                prepared |= await self.drives(machine, with_only_disks(vmi, [plug.disk]))
        return prepared

    async def drives(
        self, machine: Machine, vmi: VirtualMachineInstance | None
    ) -> Mapping[str, Drive]:
        """Return the drives of a machine, by volume.  Raises DriveError."""
        if vmi is None or not self._needed:
            return {}
        namespace = vmi.metadata.namespace
        context = VolumeContext(
            vmi=vmi,
            directory=machine.directory,
            images=self._images,
            secret=partial(self.secret, namespace),
            config_map=partial(self._config_map, namespace),
            credentials=partial(self._credentials, namespace),
            claim=partial(self._claims.find, namespace),
            pod=partial(self._client.get, Pod, machine.record.pod, namespace),
            token=partial(self._token, machine.record),
            host_disks=self._host_disks,
        )
        return await drives.prepare(context, machine)

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret.  Raises NotFound."""
        return data_of(await self._client.get(Secret, name, namespace))

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        config = await self._client.get(ConfigMap, name, namespace)
        plain = {key: value.encode() for key, value in (config.data or {}).items()}
        binary = {key: base64.b64decode(value) for key, value in (config.binaryData or {}).items()}
        return plain | binary

    async def _token(self, record: Record, account: str) -> bytes:
        token = await token_of(
            self._client,
            Key(record.namespace, account),
            kind="Pod",
            name=record.pod,
            uid=record.pod_uid,
            seconds=TOKEN_SECONDS,
        )
        return token.encode()

    async def _credentials(self, namespace: str, name: str) -> Sequence[Credential]:
        secret = await self._client.get(Secret, name, namespace)
        return from_secret(name, data_of(secret), SecretName(namespace, name, uid_of(secret)))


def data_of(secret: Secret) -> Mapping[str, bytes]:
    """Return the decoded data of a Secret."""
    return {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}
