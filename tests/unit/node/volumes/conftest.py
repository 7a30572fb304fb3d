"""A machine whose volumes are prepared, and the programs that judge the result."""

import json
import subprocess

import msgspec
import pytest

from corral.api.errors import NotFound
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node.images.store import ImageStore
from corral.node.volumes import VolumeContext

SECRETS = {
    "login": {"userdata": b"#cloud-config\n"},
    "camel": {"userData": b"camel", "networkData": b"net"},
    "other": {"x": b""},
}


async def secret(name):
    try:
        return SECRETS[name]
    except KeyError:
        raise NotFound(f'secrets "{name}" not found') from None


@pytest.fixture
def vmi():
    document = {
        "metadata": {"name": "web.example", "namespace": "farm", "uid": "u-1"},
        "spec": {"domain": {"devices": {}}},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def context(tmp_path, vmi):
    return VolumeContext(
        vmi=vmi,
        directory=tmp_path / "machine",
        images=ImageStore(tmp_path / "images"),
        secret=secret,
        config_map=secret,
        credentials=secret,
    )


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


class Judge:
    """What programs that are not ours see in a file."""

    run = staticmethod(run)

    @staticmethod
    def check(path):
        """qemu-img's opinion of a qcow2 file."""
        return json.loads(run("qemu-img", "check", "--output=json", "-f", "qcow2", path))

    @staticmethod
    def info(path):
        """What qemu-img reads of a disk."""
        return json.loads(run("qemu-img", "info", "--output=json", path))


@pytest.fixture(scope="session")
def judge():
    return Judge
