"""Every verb is cut off at each of its file operations, and taken up by the next process."""

import os
import struct
import subprocess

import pytest
from tests.unit.node.storage.test_clone import SIZE, write
from tests.unit.node.storage.test_storage import MiB

from corral.node.images import qcow
from corral.node.storage import Storage, clone
from corral.node.storage.storage import clones

OFFSET = 0x00FFFFFFFFFFFE00


def content(volume):
    """The disk as its guest sees it; QEMU takes a hundred times as long to say the same."""
    seen = {}
    for layer in reversed((volume.disk, *volume.layers)):
        held = layer.path.read_bytes()
        seen |= _clusters(held) if layer.format == "qcow2" else _letters(held)
    return seen


def _letters(held):
    return {at // 65536: chr(held[at]) for at in range(0, len(held), 65536) if held[at]}


def _clusters(held):
    """What is written in a small qcow2 file itself (QEMU's docs/interop/qcow2.rst)."""
    (l1,) = struct.unpack_from(">Q", held, 40)
    (l2,) = struct.unpack_from(">Q", held, l1)
    if not (l2 := l2 & OFFSET):
        return {}
    entries = enumerate(struct.unpack_from(f">{SIZE // 65536}Q", held, l2))
    return {number: chr(held[entry & OFFSET]) for number, entry in entries if entry & OFFSET}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    """What is done here does not have to survive a power cut, too."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


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
    made = storage.work_directory("pvc-1") / "content"
    qcow.create(made, SIZE)


def adopt(storage):
    if not storage.find("pvc-1").populated:
        storage.populate("pvc-1", storage.work_directory("pvc-1") / "content", "qcow2")


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


def begin(case, root):
    _, verb, _ = CASES[case]
    verb(Storage(root))


@pytest.mark.parametrize("full", [False, True], ids=["killed", "full"])
@pytest.mark.parametrize("case", CASES)
def test_an_operation_killed_at_any_step_is_resumed(case, full, killed_at, tmp_path):
    prepare, verb, expected = CASES[case]
    prepare(Storage(tmp_path / "begin"))
    number, came_so_far = 0, True
    while came_so_far:
        root = tmp_path / str(number)
        subprocess.run(("cp", "-a", tmp_path / "begin", root), check=True)
        before = {each.handle: content(each) for each in Storage(root).volumes()}
        came_so_far = killed_at(number, begin, case, root, full=full)
        found = Storage(root)
        found.sweep()
        for volume in found.volumes():  # what users had is whole, before anything is done again
            held = content(volume)
            assert volume.handle == "pvc-1" or held == before[volume.handle]
            assert volume.disk.path.stat().st_mode & 0o777 == 0o600
        verb(found)
        assert {each.handle: content(each) for each in found.volumes()} == expected
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


def copy(root):
    """Clone without a layer."""
    clone.MAX_LAYERS = clones.MAX_LAYERS = 0
    Storage(root).clone("golden", "pvc-1")


def test_a_killed_copy_is_repeated(killed_at, tmp_path):
    root = tmp_path / "storage"
    source_and_target(Storage(root))
    storage = Storage(root)
    number = 0
    while killed_at(number, copy, root):
        storage.sweep()
        assert content(storage.find("golden")) == {0: "g"}
        number += 1
    assert content(storage.find("pvc-1")) == {0: "g"}
    assert storage.find("pvc-1").layers == ()
    assert storage.find("golden").disk.path.stat().st_size == SIZE >= MiB
