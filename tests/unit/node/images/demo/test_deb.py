import io
import tarfile

import pytest

from corral.node.images.demo import deb
from corral.node.images.demo.errors import DemoError


def package(path, **files):
    """A Debian package; a value that begins with `->` is a link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./usr/{name}")
            if text.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, text[2:]
                archive.addfile(member)
            else:
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    path.write_bytes(
        b"!<arch>\n"
        + b"".join(
            f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
            + content
            + b"\n" * (len(content) % 2)
            for name, content in members.items()
        )
    )
    return path


def test_requested_files_are_read_and_their_links_followed(tmp_path):
    found = deb.files(
        package(tmp_path / "a.deb", real="text", other="no", name="->real", away="->/etc/passwd"),
        lambda path: path != "usr/other",
    )
    assert found == {"usr/real": b"text", "usr/name": b"text"}


@pytest.mark.parametrize("keep", [0, 8, 100, 150])
def test_a_damaged_package_is_named(tmp_path, keep):
    path = package(tmp_path / "a.deb", real="text")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DemoError, match=r"a\.deb is damaged"):
        deb.files(path, lambda _: True)
