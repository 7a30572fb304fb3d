"""Saved guests as QEMU 7.2 writes them, split into pages and the rest."""

import pytest

from corral.node.qemu.saved_stream import StreamError, split

PAGE = 4096
HEADER = b"QEVM\0\0\0\3\x07\0\0\0\x0apc-q35-7.2"
DEVICES = b"\x04\0\0\0\x03the devices, with bytes such as \x02 and \x10 of their own" * 300
ZERO, SIZE, DATA, LAST, CONTINUE = 0x02, 0x04, 0x08, 0x10, 0x20
SECTION = b"\0\0\0\2"
FOOTER = b"\x7e" + SECTION


def number(value: int, length: int = 8) -> bytes:
    return value.to_bytes(length)


def named(name: bytes) -> bytes:
    return bytes([len(name)]) + name


def blocks(**lengths: int) -> bytes:
    listed = b"".join(named(name.encode()) + number(size) for name, size in lengths.items())
    return number(sum(lengths.values()) | SIZE) + listed


def begin(listed: bytes) -> bytes:
    start = b"\x01" + SECTION + named(b"ram") + number(0, 4) + number(4, 4)
    return start + listed + number(LAST) + FOOTER


def part(*records: bytes, kind: int = 0x03) -> bytes:
    return bytes([kind]) + SECTION + b"".join(records) + number(LAST) + FOOTER


def data(address: int, content: bytes, name: bytes = b"") -> bytes:
    head = number(address | DATA | (0 if name else CONTINUE)) + (named(name) if name else b"")
    return head + content.ljust(PAGE, content[:1])


def zero(address: int, name: bytes = b"") -> bytes:
    return (
        number(address | ZERO | (0 if name else CONTINUE)) + (named(name) if name else b"") + b"\0"
    )


@pytest.fixture
def splits(tmp_path):
    """Splits a stream; returns the memory and the rest."""

    def run(stream: bytes) -> tuple[bytes, bytes]:
        (tmp_path / "saved").write_bytes(stream)
        split(tmp_path / "saved", tmp_path / "memory", tmp_path / "devices", "ram0")
        return (tmp_path / "memory").read_bytes(), (tmp_path / "devices").read_bytes()

    return run


def test_the_pages_of_the_block_are_in_the_file_and_the_others_stay_in_the_stream(splits):
    memory, rest = splits(
        HEADER
        + begin(blocks(ram0=3 * PAGE, video=2 * PAGE))
        + part(data(0, b"a", b"ram0"), zero(PAGE), data(2 * PAGE, b"c"), kind=0x02)
        + part(zero(0, b"video"), data(PAGE, b"v"))
        + DEVICES
    )
    assert memory == b"a" * PAGE + bytes(PAGE) + b"c" * PAGE
    assert rest == (
        HEADER
        + begin(blocks(video=2 * PAGE))
        + part(kind=0x02)
        + part(zero(0, b"video"), data(PAGE, b"v", b"video"))
        + DEVICES
    )


def test_a_page_that_was_sent_twice_is_the_later_one(splits):
    memory, _ = splits(
        HEADER
        + begin(blocks(ram0=2 * PAGE))
        + part(data(0, b"old", b"ram0"), data(PAGE, b"old"), kind=0x02)
        + part(zero(0, b"ram0"), data(PAGE, b"n"))
        + DEVICES
    )
    assert memory == bytes(PAGE) + b"n" * PAGE


def test_pages_of_zeros_take_no_space(splits, tmp_path):
    pages = 1000
    zeros = [zero(0, b"ram0"), *(zero(each * PAGE) for each in range(1, pages))]
    splits(HEADER + begin(blocks(ram0=pages * PAGE)) + part(*zeros) + DEVICES)
    found = (tmp_path / "memory").stat()
    assert (found.st_size, found.st_blocks) == (pages * PAGE, 0)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"QEVM\0\0\0\2" + HEADER, "header"),
        (HEADER + begin(blocks(ram0=PAGE))[:40], "cut short"),
        (HEADER + begin(blocks(ram0=PAGE)) + part(data(0, b"a", b"ram0"))[:2000], "cut short"),
        (HEADER + begin(blocks(other=PAGE)) + DEVICES, "no memory called ram0"),
        (HEADER + begin(blocks(ram0=PAGE)).replace(b"\x03ram\0", b"\x03rom\0") + DEVICES, "rom"),
        (HEADER + begin(blocks(ram0=PAGE)) + part(number(0x140) + b"x") + DEVICES, "flags"),
        (HEADER + begin(blocks(ram0=PAGE)).replace(FOOTER, b"\x7e\0\0\0\3") + DEVICES, "no end"),
        (HEADER + begin(blocks(ram0=1 << 50)) + part(zero(0, b"ram0")) + DEVICES, "fewer pages"),
        (HEADER + begin(blocks(ram0=PAGE)) + part(data(PAGE, b"a", b"ram0")) + DEVICES, "outside"),
    ],
)
def test_a_stream_of_another_form_is_refused(splits, stream, why):
    with pytest.raises(StreamError, match=why):
        splits(stream)
