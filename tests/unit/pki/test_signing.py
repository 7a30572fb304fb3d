"""Tests of the key that signs tokens."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from corral.pki import PkiError, SigningKey


def test_an_existing_key_is_kept(tmp_path):
    path = tmp_path / "key.pem"
    key = SigningKey.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = SigningKey.load_or_create(path)
    assert again.name == key.name
    assert again.public == key.public
    assert again.has_signed(b"content", key.sign(b"content"))


def test_changed_content_has_no_valid_signature():
    key = SigningKey()
    signature = key.sign(b"content")
    assert key.has_signed(b"content", signature)
    assert not key.has_signed(b"other", signature)
    assert not SigningKey().has_signed(b"content", signature)
    for other in (b"", bytes(64), b"\xff" * 64, signature[:-1], signature + b"\0"):
        assert not key.has_signed(b"content", other)


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"not a key",
        lambda: pem(ec.generate_private_key(ec.SECP384R1())),
        lambda: pem(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["empty", "no key", "P-384", "RSA"],
)
def test_a_file_with_another_key_is_named(tmp_path, make):
    path = tmp_path / "key.pem"
    path.write_bytes(make())
    with pytest.raises(PkiError, match=r"key\.pem .*Remove it"):
        SigningKey.load_or_create(path)
