"""serviceAccount: what a pod of Kubernetes finds below /var/run/secrets."""

import dataclasses

import pytest

from corral.api.errors import NotFound
from corral.api.kinds.vmi.volumes import ServiceAccountVolume, Volume
from corral.node.volumes import VolumeError, prepare


def volume(name):
    return Volume(name="who", service_account=ServiceAccountVolume(service_account_name=name))


async def test_token_namespace_and_ca_are_included(context, iso):
    files = iso((await prepare(volume("robot"), context)).path)
    assert files == {"token": b"a.b.c", "namespace": b"farm", "ca.crt": b"-----BEGIN"}
    assert files.label == "cfgdata"


async def test_a_missing_account_is_reported(context):
    with pytest.raises(VolumeError, match='serviceaccount "nobody" not found'):
        await prepare(volume("nobody"), context)


async def test_a_missing_ca_is_awaited(context):
    async def missing(name):
        raise NotFound(name)

    context = dataclasses.replace(context, config_map=missing)
    with pytest.raises(VolumeError, match=r'configmap "kube-root-ca.crt" not found'):
        await prepare(volume("robot"), context)
