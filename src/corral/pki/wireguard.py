"""Private keys of WireGuard (Curve25519), and the public keys that follow from them."""

import base64
from binascii import Error
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from corral import files

KEY_BYTES: Final = 32


def wireguard_key(path: Path) -> bytes:
    """Return the private key of a file (mode 0600, base64 as ``wg genkey`` prints it).

    A key is generated where there is none, and in place of a damaged one: other hosts learn the
    public key anew anyway.  Raises OSError.
    """
    found = _read(path)
    if found is not None:
        return found
    made = X25519PrivateKey.generate().private_bytes_raw()
    files.replace(path, base64.b64encode(made) + b"\n", durable=True)
    return made


def wireguard_public_key(private: bytes) -> bytes:
    """Return the public key of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _read(path: Path) -> bytes | None:
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except (FileNotFoundError, Error):
        return None
    return key if len(key) == KEY_BYTES else None
