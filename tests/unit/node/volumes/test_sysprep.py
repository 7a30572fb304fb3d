"""sysprep: the answer file of an unattended Windows installation."""

import dataclasses

import pytest

from corral.api.kinds.vmi.volumes import ObjectName, SysprepVolume, Volume
from corral.node.volumes import VolumeError, prepare

ANSWER_FILES = {"Unattend.XML": b"<unattend/>", "extra": b""}


@pytest.mark.parametrize("source", ["secret", "config_map"])
async def test_the_answer_file_is_on_a_disk_for_windows_setup(context, iso, source):
    async def values(name):
        assert name == "answers"
        return ANSWER_FILES

    context = dataclasses.replace(context, **{source: values})
    volume = Volume(name="setup", sysprep=SysprepVolume(**{source: ObjectName(name="answers")}))
    files = iso((await prepare(volume, context)).path)
    assert files == ANSWER_FILES
    assert files.label == "unattendCD"


async def test_without_an_answer_file_the_machine_does_not_start(context):
    volume = Volume(name="setup", sysprep=SysprepVolume(secret=ObjectName(name="login")))
    with pytest.raises(VolumeError) as caught:
        await prepare(volume, context)
    assert str(caught.value).endswith(
        "Sysprep drive should contain autounattend.xml or unattend.xml but neither were found."
    )


async def test_a_source_is_named(context):
    with pytest.raises(VolumeError, match="neither a secret nor a configMap"):
        await prepare(Volume(name="setup", sysprep=SysprepVolume()), context)
