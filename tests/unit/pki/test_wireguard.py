"""Keys of WireGuard, and their file."""

import base64
import stat

import pytest

from corral.pki import wireguard_key, wireguard_public_key


def test_a_public_key_follows_from_its_private_key():
    public = wireguard_public_key(bytes(range(1, 33)))
    assert base64.b64encode(public) == b"B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="  # wg pubkey


def test_a_key_is_generated_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "wireguard.key"
    key = wireguard_key(path)
    assert base64.b64decode(path.read_bytes()) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert wireguard_key(path) == key
    path.unlink()
    assert wireguard_key(path) != key


@pytest.mark.parametrize("content", [b"", b"not base64!", base64.b64encode(b"short")])
def test_a_damaged_key_is_replaced(tmp_path, content):
    path = tmp_path / "wireguard.key"
    path.write_bytes(content)
    key = wireguard_key(path)
    assert len(key) == 32
    assert wireguard_key(path) == key
