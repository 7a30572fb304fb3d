"""JSON Web Tokens (RFC 7519) that this server signs, with ES256.  Pure.

Only the header that this server writes is accepted, so the algorithm and key that a token claims
are never trusted.
"""

import base64
import binascii
from functools import lru_cache
from typing import TypeVar

import msgspec

from corral.pki import SigningKey

T = TypeVar("T")


def sign(claims: msgspec.Struct, key: SigningKey) -> str:
    """Return a signed token with these claims."""
    signed = f"{_head(key.name)}.{_encoded(msgspec.json.encode(claims))}"
    return f"{signed}.{_encoded(key.sign(signed.encode()))}"


def claims_of(token: str, key: SigningKey, form: type[T]) -> T | None:
    """Return the claims of a token; None if the signature or the form is invalid."""
    signed, _, signature = token.rpartition(".")
    head, _, body = signed.partition(".")
    if head != _head(key.name) or not token.isascii():
        return None
    try:
        if not key.has_signed(signed.encode(), _decoded(signature)):
            return None
        return msgspec.json.decode(_decoded(body), type=form)
    except (binascii.Error, msgspec.DecodeError):
        return None


@lru_cache(maxsize=8)
def _head(key: str) -> str:
    return _encoded(msgspec.json.encode({"alg": "ES256", "kid": key}))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Decode base64url.  Raises binascii.Error also for a second encoding of the same content."""
    content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encoded(content) != text:
        raise binascii.Error("not the canonical encoding")
    return content
