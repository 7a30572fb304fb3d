"""Chains of plugins: their order, and what each of them gets of the others."""

import json

import pytest

from corral.node.network.cni import chain
from corral.node.network.cni.attachments import Attachment
from corral.node.network.cni.configuration import NetworkConfiguration
from corral.node.network.netlink import NetworkError

SCRIPT = """#!/bin/sh
exec 3>> LOG
echo "$CNI_COMMAND ${0##*/} $CNI_CONTAINERID $CNI_NETNS $CNI_ARGS" >&3
cat >&3; echo >&3
case $CNI_COMMAND in ADD) echo '{"by": "'${0##*/}'"}';; esac
"""


@pytest.fixture
def attachment(tmp_path):
    for name in ("first", "second"):
        path = tmp_path / name
        path.write_text(SCRIPT.replace("LOG", str(tmp_path / "log")))
        path.chmod(0o755)
    return Attachment(
        container="c",
        uid="u",
        namespace="default",
        pod="virt-launcher",
        pod_uid="p",
        configuration=NetworkConfiguration(
            name="pods",
            version="1.0.0",
            plugins=[{"type": "first"}, {"type": "second", "capabilities": {"mac": True}}],
        ),
        capabilities={"mac": "02:00:00:00:00:02"},
        directories=[str(tmp_path)],
        result={"by": "all"},
    )


def calls(tmp_path):
    """(command, plugin, its request) of each call."""
    lines = (tmp_path / "log").read_text().splitlines()
    return [
        (*line.split()[:2], json.loads(request))
        for line, request in zip(*[iter(lines)] * 2, strict=True)
    ]


async def test_add_passes_each_result_on(attachment, tmp_path):
    assert await chain.add(attachment) == {"by": "second"}
    (_, first, one), (_, second, two) = calls(tmp_path)
    assert (first, second) == ("first", "second")
    assert "prevResult" not in one
    assert two["prevResult"] == {"by": "first"}
    assert two["runtimeConfig"] == {"mac": "02:00:00:00:00:02"}


async def test_del_goes_backwards_with_the_whole_result(attachment, tmp_path):
    await chain.delete(attachment)
    found = calls(tmp_path)
    assert [each[:2] for each in found] == [("DEL", "second"), ("DEL", "first")]
    assert all(each[2]["prevResult"] == {"by": "all"} for each in found)


async def test_check_goes_forwards(attachment, tmp_path):
    await chain.check(attachment)
    assert [each[:2] for each in calls(tmp_path)] == [("CHECK", "first"), ("CHECK", "second")]


async def test_plugins_find_the_pod_by_its_name(attachment, tmp_path):
    await chain.delete(attachment)
    line = (tmp_path / "log").read_text().splitlines()[0]
    # no namespace: it is gone
    assert line == (
        "DEL second c  IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=virt-launcher;"
        "K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=p"
    )


async def test_a_plugin_that_adds_nothing_is_named(attachment, tmp_path):
    (tmp_path / "second").write_text("#!/bin/sh\ncat > /dev/null\n")
    with pytest.raises(NetworkError, match=r'plugin type="second" failed \(add\): it printed no'):
        await chain.add(attachment)
