"""Conversions end: well, or with a reason."""

import os
import struct
import subprocess

import pytest

from corral.node.images import convert, qcow
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


async def test_a_damaged_qcow2_is_reported(tmp_path, shapes):
    source = tmp_path / "disk"
    source.write_bytes(
        shapes.qcow2_header(l1=4 << 16).ljust(4 << 16, b"\0")
        + struct.pack(">Q", (1 << 63) | 0x200).ljust(1 << 16, b"\0")
    )
    qcow.inspect(source, "it", Limits())
    with pytest.raises(ImageError, match="it is a damaged qcow2 file: "):
        await convert.to_plain_qcow2(source, tmp_path / "out", "it", Limits())


async def test_the_size_of_a_conversion_is_limited(tmp_path):
    raw, source = tmp_path / "raw", tmp_path / "disk"
    raw.write_bytes(os.urandom(1 << 20) * 4)
    run("qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", raw, source)
    with pytest.raises(ImageError, match="it occupies more than 1048576 bytes"):
        await convert.to_plain_qcow2(source, tmp_path / "out", "it", Limits(disk_bytes=1 << 20))


async def test_a_conversion_has_a_timeout(tmp_path):
    source = tmp_path / "disk"
    qcow.create(source, 1 << 30)
    with pytest.raises(ImageError, match=r"not converted within 0\.0001 seconds"):
        await convert.to_plain_qcow2(source, tmp_path / "out", "it", Limits(convert_seconds=0.0001))


async def test_a_hanging_conversion_is_killed(tmp_path, monkeypatch):
    hanging = tmp_path / "qemu-img"
    hanging.write_text(f"#!/bin/sh\ncd {tmp_path} && echo $$ > new && mv new pid\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    seconds = 0.5
    while not (tmp_path / "pid").exists():  # a busy host may take longer to start it
        seconds *= 2
        with pytest.raises(ImageError, match="not converted within"):
            await convert.to_plain_qcow2(tmp_path, tmp_path, "it", Limits(convert_seconds=seconds))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_missing_qemu_img_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="qemu-img is not installed") as caught:
        await convert.to_plain_qcow2(tmp_path / "a", tmp_path / "b", "it", Limits())
    assert "qemu-utils" in caught.value.hint
    (tmp_path / "prlimit").symlink_to("/usr/bin/prlimit")
    with pytest.raises(ImageError, match="qemu-img is not installed"):
        await convert.to_plain_qcow2(tmp_path / "a", tmp_path / "b", "it", Limits())
