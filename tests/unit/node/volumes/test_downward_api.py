"""downwardAPI: facts of the pod, as Kubernetes writes them."""

import dataclasses

import pytest
from lightkube.models.core_v1 import DownwardAPIVolumeFile, ObjectFieldSelector

from corral.api.errors import NotFound
from corral.api.kinds.vmi.volumes import DownwardApiVolume, Volume
from corral.node.volumes import VolumeError, prepare


def volume(**files):
    fields = [
        DownwardAPIVolumeFile(path=path, fieldRef=ObjectFieldSelector(fieldPath=fact))
        for path, fact in files.items()
    ]
    return Volume(name="facts", downward_api=DownwardApiVolume(fields=fields))


async def test_fields_of_the_pod(context, iso):
    facts = {
        "name": "metadata.name",
        "where/namespace": "metadata.namespace",
        "uid": "metadata.uid",
        "labels": "metadata.labels",
        "annotations": "metadata.annotations",
        "app": "metadata.labels['app']",
        "missing": "metadata.annotations['corral.dev/none']",
    }
    files = iso((await prepare(volume(**facts), context)).path)
    assert files == {
        "name": b"virt-launcher-web-x",
        "where/namespace": b"farm",
        "uid": b"p-1",
        "labels": b'app="web"\nkubevirt.io="virt-launcher"',
        "annotations": b'note="a \\"quoted\\"\\nline\\x7f\\u200b \xf0\x9f\x90\x84"',
        "app": b"web",
        "missing": b"",
    }
    assert files.label == "cfgdata"


async def test_a_deleted_pod(context):
    async def gone():
        raise NotFound("gone")

    with pytest.raises(VolumeError, match="pod is gone"):
        await prepare(volume(x="metadata.name"), dataclasses.replace(context, pod=gone))


async def test_invalid_file_names(context):
    with pytest.raises(VolumeError, match="these files cannot be written to a disk"):
        await prepare(volume(**{"a": "metadata.name", "a/b": "metadata.uid"}), context)
