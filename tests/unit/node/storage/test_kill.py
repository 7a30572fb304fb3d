"""Every verb is killed before each of its file operations, and taken up by the next process."""

import os
import sys

import pytest
from tests.unit.node.storage.test_clone import SIZE, content, write
from tests.unit.node.storage.test_storage import MiB

from corral.node.images import qcow
from corral.node.storage import Storage, clone

OPERATIONS = frozenset(
    {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
)
KILLED, DONE = 9, 0


def killed_at(number, work):
    """Do something in a process that ends, as by kill -9, before its so-manieth file operation.

    Answers whether it came that far.
    """
    child = os.fork()
    if child == 0:
        left = number

        def hook(event, _):
            nonlocal left
            if event in OPERATIONS:
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(hook)
        try:
            work()
        except BaseException:  # noqa: BLE001 - told by the exit code
            os._exit(1)
        os._exit(DONE)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (KILLED, DONE)
    return code == KILLED


def letters(storage, handle, tmp_path):
    return content(storage.find(handle), tmp_path)


def nothing(storage):
    """No volume is there yet."""


def blank(storage):
    storage.provision("pvc-1", SIZE)


def golden(storage):
    storage.provision("golden", SIZE)
    write(storage.find("golden"), 0, "g")


def source_and_target(storage):
    golden(storage)
    storage.provision("pvc-1", SIZE)


def cloned_once(storage):
    source_and_target(storage)
    storage.clone("golden", "pvc-1")
    write(storage.find("golden"), 65536, "h")


def full_target(storage):
    storage.provision("blank", SIZE)
    storage.provision("pvc-1", SIZE)
    write(storage.find("pvc-1"), 0, "p")


def content_made(storage):
    blank(storage)
    made = storage.workplace("pvc-1") / "content"
    qcow.create(made, SIZE)


def adopt(storage):
    if not storage.find("pvc-1").filled:
        storage.adopt("pvc-1", storage.workplace("pvc-1") / "content", "qcow2")


CASES = {
    "provision": (nothing, lambda storage: storage.provision("pvc-1", SIZE), {"pvc-1": {}}),
    "remove": (cloned_once, lambda storage: storage.remove("golden"), {"pvc-1": {0: "g"}}),
    "resize": (golden, lambda storage: storage.resize("golden", 2 * SIZE), {"golden": {0: "g"}}),
    "clone": (
        source_and_target,
        lambda storage: storage.clone("golden", "pvc-1"),
        {"golden": {0: "g"}, "pvc-1": {0: "g"}},
    ),
    "clone anew": (
        cloned_once,
        lambda storage: storage.clone("golden", "pvc-1"),
        {"golden": {0: "g", 1: "h"}, "pvc-1": {0: "g", 1: "h"}},
    ),
    "clone nothing": (
        full_target,
        lambda storage: storage.clone("blank", "pvc-1"),
        {"blank": {}, "pvc-1": {}},
    ),
    "adopt": (content_made, adopt, {"pvc-1": {}}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verb_that_was_killed_is_taken_up_again(case, tmp_path):
    prepare, verb, wanted = CASES[case]
    number, came_so_far = 0, True
    while came_so_far:
        root = tmp_path / str(number)
        prepare(Storage(root))
        before = {each.handle: content(each, tmp_path) for each in Storage(root).volumes()}
        came_so_far = killed_at(number, lambda: verb(Storage(root)))  # noqa: B023 - called here
        found = Storage(root)
        found.sweep()
        for volume in found.volumes():  # what users had is whole, before anything is done again
            held = content(volume, tmp_path)
            assert volume.handle == "pvc-1" or held == before[volume.handle]
            assert volume.disk.path.stat().st_mode & 0o777 == 0o600
        verb(found)
        assert {each.handle: content(each, tmp_path) for each in found.volumes()} == wanted
        assert left_over(root, found) == []
        number += 1
    assert number > 5


def left_over(root, storage):
    """Files below a storage that are no volume's."""
    known = {root / ".lock", root / "id"}
    for volume in storage.volumes():
        known |= {volume.disk.path, volume.directory / "volume.json"}
        known |= {each.path for each in volume.layers}
    return [each for each in root.rglob("*") if each.is_file() and each not in known]


def test_a_copy_that_was_killed_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(clone, "DEEPEST", 0)
    monkeypatch.setattr("corral.node.storage.storage.clones.DEEPEST", 0)
    source_and_target(Storage(tmp_path / "storage"))
    storage = Storage(tmp_path / "storage")
    number = 0
    while killed_at(number, lambda: Storage(tmp_path / "storage").clone("golden", "pvc-1")):
        storage.sweep()
        assert letters(storage, "golden", tmp_path) == {0: "g"}
        number += 1
    assert letters(storage, "pvc-1", tmp_path) == {0: "g"}
    assert storage.find("pvc-1").layers == ()
    assert storage.find("golden").disk.path.stat().st_size == SIZE >= MiB
