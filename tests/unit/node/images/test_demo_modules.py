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


def test_each_module_comes_after_what_it_needs():
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
