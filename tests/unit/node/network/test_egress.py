"""How the way out is started."""

from corral.node.network.egress import command


def test_machines_see_nothing_of_the_host():
    words = command(5, (4, 6), root=False)
    assert "--no-map-gw" in words
    for ports in ("-t", "-u", "-T", "-U"):
        assert words[words.index(ports) + 1] == "none"
    assert words[-2:] == ["--netns", "/proc/self/fd/5"]
    assert "--runas" not in words


def test_a_host_without_ipv6_provides_none():
    assert "--ipv4-only" in command(5, (4,), root=True)
    assert not any(":" in word and word != "0:0" for word in command(5, (4,), root=True))
    assert "--ipv4-only" not in command(5, (4, 6), root=True)


def test_root_can_enter_the_namespace():
    words = command(5, (4,), root=True)
    assert words[words.index("--runas") + 1] == "0:0"
