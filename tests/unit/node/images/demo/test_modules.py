import struct

from corral.node.images.demo import modules


def module(*, depends="", aliases=()):
    words = [f"depends={depends}", *(f"alias={alias}" for alias in aliases)]
    return b"\x7fELF\0" + b"".join(word.encode() + b"\0" for word in words) + b"code"


MODULES = {
    "virtio_net": module(depends="net-failover,virtio", aliases=["virtio:d00000001v*"]),
    "net_failover": module(depends="failover"),
    "failover": module(),
    "virtio": module(depends="built_in"),
}


def test_modules_come_after_their_dependencies():
    assert modules.closure(["virtio_net"], MODULES) == [
        "failover",
        "net_failover",
        "virtio",
        "virtio_net",
    ]


def test_the_tables_are_those_of_depmod():
    assert "virtio_net.ko: virtio.ko net_failover.ko failover.ko\n" in modules.dependency_table(
        MODULES
    )
    assert modules.alias_table(MODULES) == "alias virtio:d00000001v* virtio_net\n"


def test_a_signature_is_cut_off():
    trailer = bytes(8) + (5).to_bytes(4, "big") + b"~Module signature appended~\n"
    assert modules.unsigned(b"code" + b"12345" + trailer) == b"code"
    assert modules.unsigned(b"code") == b"code"


def linkable(**sections):
    """A 64-bit ELF file of these sections."""
    names, rows, body = b"\0", [(0,) * 10], bytearray(64)
    for name, content in sections.items():
        rows.append((len(names), 1, 2, 0, len(body), len(content), 0, 0, 1, 0))
        names += b"." + name.encode() + b"\0"
        body += content
    rows.append((0, 3, 0, 0, len(body), len(names), 0, 0, 1, 0))
    body += names
    body[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", body, 40, len(body))
    struct.pack_into("<HH", body, 60, len(rows), len(rows) - 1)
    return bytes(body) + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)


def sections(module):
    (table,) = struct.unpack_from("<Q", module, 40)
    count, names = struct.unpack_from("<HH", module, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", module, table + 64 * at) for at in range(count)]
    text = rows[names][4]
    return {
        module[text + row[0] + 1 : module.index(b"\0", text + row[0])].decode(): (
            row[2], module[row[4] : row[4] + row[5]],
        )
        for row in rows[1:-1]
    }  # fmt: skip


def test_a_lean_module_has_no_unwind_tables_and_no_btf():
    module = linkable(text=b"code", BTF=bytes(4000), orc_unwind=b"table", data=b"values")
    lean = modules.lean(module)
    assert sections(lean) == {
        "text": (2, b"code"), "BTF": (0, b""), "orc_unwind": (0, b""), "data": (2, b"values"),
    }  # fmt: skip
    assert len(lean) < len(module) - 3900
    assert modules.lean(b"\x7fELF\x01 of 32 bits") == b"\x7fELF\x01 of 32 bits"
