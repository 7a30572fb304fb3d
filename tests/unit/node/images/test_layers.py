"""The one disk in a stack of layers, as an unpacked image would show it; and hostile archives."""

import io
import tarfile
import time

import pytest
from hypothesis import given, settings, strategies as st

from corral.node.images import layers
from corral.node.images.error import ImageError
from corral.node.images.layers import find_disk
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, silent

A, B = b"a" * 1024, b"b" * 2048


@pytest.fixture
def find(tmp_path, shapes):
    """Find a disk in layers of files, or of raw bytes; answers its content."""

    async def run(*layers, path="", limits=None):
        files = []
        for number, layer in enumerate(layers):
            file = tmp_path / f"layer{number}"
            file.write_bytes(layer if isinstance(layer, bytes) else shapes.tar(layer))
            files.append(file)
        meter, target = Meter(silent, "unpack"), tmp_path / "target"
        find_disk(meter, files, path, target, limits or Limits())
        return target.read_bytes()

    return run


@pytest.mark.parametrize(
    "layers",
    [
        [{"disk/x": A}],
        [{"./disk": None, "./disk/x": A}],
        [{"/disk/x": A}],
        [{"etc/x": B, "disk/x": A, "diskette/y": B}],
        [{"disk/x": B}, {"disk/x": A}],
        [{"disk/x": B}, {"disk/.wh.x": b"", "disk/y": A}],
        [{"disk/x": B}, {"disk/y": A, "disk/.wh.x": b""}],
        [{"disk/x": B}, {"disk/.wh..wh..opq": b"", "disk/y": A}],
        [{"disk/x": B}, {".wh.disk": b""}, {"disk/y": A}],
        [{"disk/x": B}, {".wh..wh..opq": b"", "disk/y": A}],
        [{"disk/x": B, "disk/y": B}, {"disk/.wh.y": b""}, {"disk/x": A}],
        [{"disk/x": A}, {"etc/motd": B}],
        [{"disk/x": A}, {"disk/.wh.never": b""}],
        [{"disk/sub/x": B}, {"disk/.wh.sub": b"", "disk/x": A}],
    ],
)
async def test_the_last_layer_wins(find, layers):
    assert await find(*layers) == A


@pytest.mark.parametrize(
    ("layers", "path"),
    [
        ([{"disk/x": B, "disk/y": A}], "/disk/y"),
        ([{"disk/x": B, "disk/y": A}], "disk/y"),
        ([{"images/deep/y": A}], "/images/deep/y"),
        ([{"y": A, "disk/x": B}], "/y"),
        ([{"disk/y": B}, {"disk/y": A}], "/disk/y"),
    ],
)
async def test_the_path_selects_the_disk(find, layers, path):
    assert await find(*layers, path=path) == A


@pytest.mark.parametrize(
    ("layers", "path", "message"),
    [
        ([{}], "", "no file found in folder /disk, no disk present"),
        ([{"disk": None}], "", "no file found in folder /disk"),
        ([{"disk/x": A}, {".wh.disk": b""}], "", "no file found in folder /disk"),
        ([{"disk/x": A}, {"disk/.wh.x": b""}], "", "no file found in folder /disk"),
        ([{"disk/x": A}, {"disk/y": A}], "", "more than one file found in folder /disk"),
        ([{"disk/x": A, "disk/sub": None}], "", "more than one file found"),
        ([{"disk/sub/x": A}], "", "/disk/sub in the image is not a plain file"),
        ([{"disk": A}], "", "/disk in the image is a link or a file, not a folder"),
        ([{"disk/x": A}], "/disk/y", "no file /disk/y in the image"),
        ([{"a/b": A}], "/a/b/c", "/a/b in the image is a link or a file"),
        ([{"a/b": None}], "/a/b", "not a plain file"),
        ([{"disk/x": A}], "/disk/../etc/shadow", "outside of the image"),
        ([{"../../etc/passwd": A}], "", "outside of the image"),
    ],
)
async def test_archives_without_a_disk(find, layers, path, message):
    with pytest.raises(ImageError, match=message):
        await find(*layers, path=path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
async def test_links_and_devices_are_not_followed(find, shapes, kind):
    layer = shapes.tar({"disk/x": b""}, type=kind, linkname="/etc/shadow")
    with pytest.raises(ImageError, match="/disk/x in the image is not a plain file"):
        await find(layer)
    folder = shapes.tar({"disk": b""}, type=kind, linkname="/etc")
    with pytest.raises(ImageError, match="/disk in the image is a link"):
        await find(folder)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
async def test_long_names_are_read(find, form):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in (("etc/" + "x" * 300, B), ("disk/" + "ü" * 120, A)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert await find(buffer.getvalue()) == A


def header(kind=tarfile.REGTYPE, size=0, name="disk/x"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(body):
    return body + bytes(-len(body) % 512)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (b"x" * 2000, "not a tar file"),
        (header(size=10_000) + b"short", "ends in the middle of 'disk/x'"),
        (header()[:100], "not a tar file"),
        (header(tarfile.XHDTYPE, 1 << 40), "has a header of 1099511627776 bytes"),
        (header(tarfile.GNUTYPE_LONGNAME, 1 << 40), "has a header of"),
        (header(tarfile.XHDTYPE, 20) + padded(b"99 path=x\n"), "malformed extended header"),
        (header(tarfile.XHDTYPE, 10) + padded(b"no digits\n"), "malformed extended header"),
        (header(tarfile.XHDTYPE, 11) + padded(b"11 size=-1\n") + header(), "impossible size"),
        (header(tarfile.XHDTYPE, 10) + padded(b"10 size=x\n") + header(), "impossible size"),
        (header(tarfile.GNUTYPE_SPARSE, 512) + bytes(1024), "sparse"),
        (
            header(tarfile.XHDTYPE, 22) + padded(b"22 GNU.sparse.major=1\n") + header(),
            "sparse",
        ),
        (header(size=-1), "impossible size"),
    ],
)
async def test_inconsistent_archives_are_rejected(find, layer, message):
    with pytest.raises(ImageError, match=message):
        await find(layer)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (header(tarfile.XHDTYPE) * 17 + header(), "too many extension headers"),
        (header(tarfile.GNUTYPE_LONGLINK) * 17 + header(), "too many extension headers"),
        (header(tarfile.XGLTYPE) * 17, "too many extension headers"),
        (
            header(tarfile.GNUTYPE_LONGNAME, 5000) + padded(b"a/" * 2500) + header(),
            "path of 5000 characters",
        ),
    ],
)
async def test_archives_of_headers_only_are_limited(find, layer, message):
    with pytest.raises(ImageError, match=message):
        await find(layer)


async def test_the_total_size_of_extended_headers_is_limited(find, monkeypatch):
    monkeypatch.setattr(layers, "_MAX_TOTAL_HEADER_BYTES", 4000)
    one = header(tarfile.XHDTYPE, 1536) + padded(b"1536 comment=" + bytes(1523)) + header(name="x")
    with pytest.raises(ImageError, match="too many extension headers"):
        await find(one * 3)
    with pytest.raises(ImageError, match="no disk present"):
        await find(one * 2)


async def test_a_header_of_many_records_is_read_in_one_pass(find):
    """It took 17 seconds: what is left was copied for each of them."""
    body = b"4 =\n" * (1 << 18)
    begun = time.process_time()
    with pytest.raises(ImageError, match="no disk present"):
        await find(header(tarfile.XHDTYPE, len(body)) + padded(body) + header(name="x"))
    assert time.process_time() - begun < 5


async def test_a_huge_declared_size_costs_nothing_by_itself(find):
    layer = header(tarfile.XHDTYPE, 28) + padded(b"28 size=9999999999999999999\n") + header()
    with pytest.raises(ImageError, match="ends in the middle"):
        await find(layer)


async def test_limits_of_a_layer(find):
    many = {f"etc/{number}": b"" for number in range(20)} | {"disk/x": A}
    with pytest.raises(ImageError, match="more than 20 files"):
        await find(many, limits=Limits(files=20))
    assert await find(many, limits=Limits(files=21)) == A
    with pytest.raises(ImageError, match="/disk/x occupies more than 1000 bytes"):
        await find({"disk/x": A}, limits=Limits(disk_bytes=1000))


async def test_the_number_of_whiteouts_is_limited(find):
    layer = {f"disk/.wh.{number}": b"" for number in range(10_001)}
    with pytest.raises(ImageError, match="more than 10000 names in folder /disk"):
        await find({"disk/x": A}, layer)


async def test_zeros_become_holes(find, tmp_path):
    assert await find({"disk/x": bytes(8 << 20) + A}) == bytes(8 << 20) + A
    assert (tmp_path / "target").stat().st_blocks * 512 < 1 << 20


class Quiet:
    def advance(self, count):
        pass


@settings(max_examples=100)
@given(changes=st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=12))
def test_any_archive_is_read_or_rejected(tmp_path_factory, changes):
    """Bytes of headers changed, with the checksum mended so that the change is believed."""
    layer = bytearray(header(tarfile.XHDTYPE, 10) + padded(b"10 path=x\n") + header(size=5))
    layer += padded(b"12345") + header(name="disk/y", size=3) + padded(b"123") + bytes(1024)
    for position, value in changes:
        if position < len(layer):
            layer[position] = value
    for start in range(0, len(layer) - 512, 512):
        if layer[start + 257 : start + 262] == b"ustar":
            layer[start + 148 : start + 156] = b" " * 8
            total = sum(layer[start : start + 512])
            layer[start + 148 : start + 156] = b"%06o\0 " % total
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "layer").write_bytes(layer)
    try:
        find_disk(Quiet(), [folder / "layer"], "", folder / "target", Limits())
    except ImageError as error:
        complaint = str(error)
    else:
        complaint = ""
    assert len(complaint) < 1200
    assert complaint.isprintable()
