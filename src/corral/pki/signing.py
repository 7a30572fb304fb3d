"""Signing keys for JSON Web Tokens: ECDSA with P-256 and SHA-256 (ES256, RFC 7518)."""

import base64
import hashlib
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from corral import files
from corral.pki.certificates import PkiError, key_pem, new_key

SIGNATURE_BYTES: Final = 64
_INTEGER_BYTES: Final = 32
_ALGORITHM: Final = ec.ECDSA(hashes.SHA256())


class SigningKey:
    """A private key with its public part; generated unless given.

    name: the key id (``kid``), as Kubernetes derives it.
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        self._key = key or new_key()
        self._public = self._key.public_key()
        encoded = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.name = _text(hashlib.sha256(encoded).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningKey) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def load_or_create(cls, path: Path) -> "SigningKey":
        """Load the key of a file, or create it.  Raises PkiError."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = key_pem(new_key())
            files.replace(path, content, durable=True)
        try:
            key = serialization.load_pem_private_key(content, password=None)
        except (ValueError, TypeError) as error:
            raise PkiError(f"{path} cannot be read: {error}. {_ADVICE}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise PkiError(f"{path} is no key of the curve P-256. {_ADVICE}")
        return cls(key)

    def sign(self, content: bytes) -> bytes:
        """Return the signature as RFC 7518 has it: r and s, concatenated."""
        r, s = decode_dss_signature(self._key.sign(content, _ALGORITHM))
        return r.to_bytes(_INTEGER_BYTES, "big") + s.to_bytes(_INTEGER_BYTES, "big")

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        if len(signature) != SIGNATURE_BYTES:
            return False
        r, s = (
            int.from_bytes(half, "big")
            for half in (signature[:_INTEGER_BYTES], signature[_INTEGER_BYTES:])
        )
        try:
            self._public.verify(encode_dss_signature(r, s), content, _ALGORITHM)
        except InvalidSignature:
            return False
        return True

    @property
    def public(self) -> dict[str, str]:
        """The public key as a JSON Web Key (RFC 7517)."""
        point = self._public.public_numbers()
        return {
            "use": "sig",
            "kty": "EC",
            "kid": self.name,
            "crv": "P-256",
            "alg": "ES256",
            "x": _text(point.x.to_bytes(_INTEGER_BYTES, "big")),
            "y": _text(point.y.to_bytes(_INTEGER_BYTES, "big")),
        }


_ADVICE: Final = "Remove it to have a new one made; tokens of ServiceAccounts have to be made anew."


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
