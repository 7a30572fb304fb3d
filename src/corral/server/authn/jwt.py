"""JSON Web Tokens (RFC 7519) that this server signs, with ES256.  Pure.

One form is written and read, so what a token's head says need not be believed: it has to be ours.
"""

import base64
import binascii
from functools import lru_cache
from typing import TypeVar

import msgspec

from corral.pki import SigningKey

T = TypeVar("T")


def sign(claims: msgspec.Struct, key: SigningKey) -> str:
    """A token that makes these claims."""
    signed = f"{_head(key.name)}.{_encoded(msgspec.json.encode(claims))}"
    return f"{signed}.{_encoded(key.sign(signed.encode()))}"


def claims_of(token: str, key: SigningKey, form: type[T]) -> T | None:
    """What a token claims; None unless it was signed with the key, and is of that form."""
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
    """Raises binascii.Error for any other form than the one that is written."""
    content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encoded(content) != text:
        raise binascii.Error("the same content has another form")
    return content
