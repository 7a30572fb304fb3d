"""A storage on a file system that has 100 GiB."""

import json
import subprocess

import pytest
from tests.unit.node.storage.killed import killing

from corral.node.storage import Storage
from corral.node.storage.disk_space import Space

GiB = 1 << 30


@pytest.fixture(scope="session")
def killed_at():
    """Does work in a process that is killed; see ``killing``."""
    with killing() as does:
        yield does


@pytest.fixture
def space():
    """What the file system has; tests change it."""
    return {"total": 100 * GiB, "free": 100 * GiB}


@pytest.fixture
def storage(tmp_path, space):
    return Storage(tmp_path / "storage", space=lambda _: Space(**space))


class Judge:
    """What qemu-img sees in a file."""

    @staticmethod
    def info(path):
        command = ("qemu-img", "info", "--output=json", path)
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    @staticmethod
    def check(path):
        command = ("qemu-img", "check", "-f", "qcow2", path)
        return subprocess.run(command, check=False, capture_output=True).returncode


@pytest.fixture(scope="session")
def judge():
    return Judge
