"""References of a VMI to Secrets, ConfigMaps and ServiceAccounts of its namespace."""

from collections.abc import Iterator
from typing import NamedTuple

from corral.api.kinds.vmi.access import AccessCredential
from corral.api.kinds.vmi.user_data import USER_DATA_SECRET
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import ObjectName, Volume

SECRET, CONFIG_MAP, SERVICE_ACCOUNT = "Secret", "ConfigMap", "ServiceAccount"
AUTHORITY = "kube-root-ca.crt"
"""The ConfigMap of each namespace that holds the CA certificate of the API server."""


class Reference(NamedTuple):
    """An object by its kind and its name."""

    kind: str
    name: str


def named_objects(vmi: VirtualMachineInstance) -> set[Reference]:
    """Return the objects that the spec names, and the Secret of user data that came later."""
    found = references(vmi.spec)
    if secret := vmi.metadata.annotations.get(USER_DATA_SECRET):
        found.add(Reference(SECRET, secret))
    return found


def references(spec: Spec) -> set[Reference]:
    """Return the objects that the machine needs to start, and those with its access credentials."""
    found = {one for volume in spec.volumes for one in _of_volume(volume)}
    found |= {
        Reference(SECRET, name)
        for credential in spec.access_credentials
        if (name := secret_of(credential))
    }
    return {one for one in found if one.name}


def secret_of(credential: AccessCredential) -> str:
    """Return the Secret of an access credential; empty if it names none."""
    kind = credential.ssh_public_key or credential.user_password
    return kind.source.secret.secret_name if kind is not None and kind.source.secret else ""


def _of_volume(volume: Volume) -> Iterator[Reference]:
    settings = volume.cloud_init_no_cloud or volume.cloud_init_config_drive
    secrets: list[ObjectName | None] = []
    config_maps: list[ObjectName | None] = []
    if settings is not None:
        secrets += [settings.secret_ref, settings.network_data_secret_ref]
    if (sysprep := volume.sysprep) is not None:
        secrets.append(sysprep.secret)
        config_maps.append(sysprep.config_map)
    yield from (Reference(SECRET, one.name) for one in secrets if one is not None)
    yield from (Reference(CONFIG_MAP, one.name) for one in config_maps if one is not None)
    if volume.secret is not None:
        yield Reference(SECRET, volume.secret.secret_name)
    if volume.config_map is not None:
        yield Reference(CONFIG_MAP, volume.config_map.name)
    if volume.container_disk is not None:
        yield Reference(SECRET, volume.container_disk.image_pull_secret)
    if volume.service_account is not None:
        yield Reference(SERVICE_ACCOUNT, volume.service_account.service_account_name)
        yield Reference(CONFIG_MAP, AUTHORITY)
