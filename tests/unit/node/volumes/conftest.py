"""A machine whose volumes are prepared, and the programs that judge the result."""

import json
import subprocess

import msgspec
import pycdlib
import pytest
from lightkube.models.core_v1 import Pod

from corral.api.errors import NotFound
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.images.store import ImageStore
from corral.node.volumes import VolumeContext

SECRETS = {
    "login": {"userdata": b"#cloud-config\n"},
    "camel": {"userData": b"camel", "networkData": b"net"},
    "other": {"x": b""},
    "keys": {
        "a": b"# mine\n ssh-ed25519 AAA one\n\n",
        "b": b"ssh-rsa BBB two\nssh-ed25519 AAA one",
    },
    "kube-root-ca.crt": {"ca.crt": b"-----BEGIN"},
}


POD = {
    "metadata": {
        "name": "virt-launcher-web-x",
        "namespace": "farm",
        "uid": "p-1",
        "labels": {"kubevirt.io": "virt-launcher", "app": "web"},
        "annotations": {"note": 'a "quoted"\nline\x7f\u200b \U0001f404'},
    },
}


async def pod():
    return msgspec.convert(POD, Pod)


async def token(name):
    if name != "robot":
        raise NotFound(f'serviceaccounts "{name}" not found')
    return b"a.b.c"


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
        token=token,
        pod=pod,
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


class Iso(dict):
    """What is on a disk of files: contents by path; the same by Rock Ridge and by Joliet."""

    def __init__(self, path):
        image = pycdlib.PyCdlib()
        image.open(str(path))
        self.label = image.pvd.volume_identifier.decode().strip()
        super().__init__(self._found(image, "rr_path"))
        self.joliet = self._found(image, "joliet_path")
        assert sorted(self.values()) == sorted(self.joliet.values())
        image.close()

    @staticmethod
    def _found(image, names):
        contents = {}
        for parent, _, files in image.walk(**{names: "/"}):
            for name in files:
                whole = f"{parent.rstrip('/')}/{name}"
                with image.open_file_from_iso(**{names: whole}) as file:
                    contents[whole.lstrip("/")] = file.read()
        return contents


@pytest.fixture
def iso():
    return Iso
