"""Work in progress leaves nothing behind, not even when its process was killed."""

import os
import subprocess
import sys

import pytest

from corral.node.images.work_directory import work_directory


@pytest.fixture
def folders(tmp_path):
    work, blobs = tmp_path / "work", tmp_path / "blobs"
    work.mkdir()
    blobs.mkdir()
    return work, blobs


def directories(folder):
    return [each for each in folder.iterdir() if each.is_dir()]


def test_the_directory_is_removed_afterwards(folders):
    def work_and_fail():
        with work_directory(*folders) as work:
            (work / "file").write_bytes(b"x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work_and_fail()
    assert directories(folders[0]) == []


def test_directories_in_use_stay(folders):
    with work_directory(*folders) as one, work_directory(*folders) as other:
        assert sorted(directories(folders[0])) == sorted([one, other])


def test_directories_of_killed_processes_are_removed(folders):
    program = (
        "import os, pathlib, sys\n"
        "from corral.node.images.work_directory import work_directory\n"
        "with work_directory(*map(pathlib.Path, sys.argv[1:])) as work:\n"
        "    (work / 'disk').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, *folders], check=False)
    assert len(directories(folders[0])) == 1
    with work_directory(*folders) as work:
        assert directories(folders[0]) == [work]


def test_stale_partial_layers_are_removed(folders):
    old, fresh = folders[1] / "old", folders[1] / "fresh"
    for each in (old, fresh):
        each.write_bytes(b"x")
    os.utime(old, (0, 0))
    with work_directory(*folders):
        assert list(folders[1].iterdir()) == [fresh]
