"""Seed disks hold any files, under their whole names."""

import stat

import pycdlib

from corral.node.volumes import seed


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


def test_it_is_for_its_owner_only_and_whole(tmp_path):
    (tmp_path / ".disk.partial").write_bytes(b"left by a killed process" * 100_000)
    seed.write(tmp_path / "disk", "cidata", {"user-data": b"password"})
    assert [each.name for each in tmp_path.iterdir()] == ["disk"]
    assert stat.S_IMODE((tmp_path / "disk").stat().st_mode) == 0o600
    assert (tmp_path / "disk").stat().st_size < 1 << 20
