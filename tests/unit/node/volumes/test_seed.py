"""Seed disks hold any files, under their whole names."""

import stat

import pycdlib
import pytest

from corral.api.kinds.vmi.volumes import Volume
from corral.node.volumes import VolumeError, seed


def test_names_and_contents_of_any_length(tmp_path):
    files = {"autounattend.xml": b"<x/>", "A" * 60: b"", "large": bytes(range(256)) * 5000}
    seed.write(tmp_path / "disk", "cfgdata", files)
    image = pycdlib.PyCdlib()
    image.open(str(tmp_path / "disk"))
    for name, content in files.items():
        for where in ({"rr_path": f"/{name}"}, {"joliet_path": f"/{name}"}):
            with image.open_file_from_iso(**where) as file:
                assert file.read() == content
    image.close()


def test_the_image_is_private_and_written_atomically(tmp_path):
    (tmp_path / ".disk.partial").write_bytes(b"left by a killed process" * 100_000)
    seed.write(tmp_path / "disk", "cidata", {"user-data": b"password"})
    assert [each.name for each in tmp_path.iterdir()] == ["disk"]
    assert stat.S_IMODE((tmp_path / "disk").stat().st_mode) == 0o600
    assert (tmp_path / "disk").stat().st_size < 1 << 20


def test_long_names_stay_unique_after_truncation_by_joliet(tmp_path, iso):
    files = {"k" * 253: b"1", "k" * 252 + "x": b"2", "k" * 64: b"3"}
    seed.write(tmp_path / "disk", "cfgdata", files)
    found = iso(tmp_path / "disk")
    assert found == files
    assert len(found.joliet) == 3
    assert max(map(len, found.joliet)) == 64


def test_files_may_be_in_directories(tmp_path, iso):
    files = {"a/b/c": b"1", "a/b/d": b"2", "a/e": b"3", "f": b"4"}
    seed.write(tmp_path / "disk", "cfgdata", files)
    found = iso(tmp_path / "disk")
    assert found == found.joliet == files


async def test_too_many_files_are_rejected(context):
    async def many(_volume, _context):
        return {str(number): b"" for number in range(seed.MAX_FILES + 1)}

    with pytest.raises(VolumeError, match="1001 files are more than the 1000 of one disk"):
        await seed.prepare(Volume(name="many"), context, "cfgdata", many)


@pytest.mark.parametrize("label", ["x" * 33, "gr\u00fcn", "a\nb"])
async def test_invalid_labels_are_rejected(context, label):
    async def none(_volume, _context):
        return {}

    with pytest.raises(VolumeError, match="its label is not"):
        await seed.prepare(Volume(name="odd"), context, label, none)
