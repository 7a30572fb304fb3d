"""JSON Web Tokens (RFC 7519) that this server signs for itself, with HMAC-SHA256.  Pure.

One form is written and read, so what a token's head says need not be believed: it has to be ours.
"""

import base64
import binascii
import hmac
from typing import TypeVar

import msgspec

_HEAD = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()

T = TypeVar("T")


def sign(claims: msgspec.Struct, key: bytes) -> str:
    """A token that makes these claims."""
    signed = f"{_HEAD}.{_encoded(msgspec.json.encode(claims))}"
    return f"{signed}.{_signature(signed, key)}"


def claims_of(token: str, key: bytes, form: type[T]) -> T | None:
    """What a token claims; None unless it was signed with the key, and is of that form."""
    signed, _, signature = token.rpartition(".")
    if not token.isascii() or not hmac.compare_digest(_signature(signed, key), signature):
        return None
    head, _, body = signed.partition(".")
    if head != _HEAD:
        return None
    try:
        return msgspec.json.decode(
            base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=form
        )
    except (binascii.Error, msgspec.DecodeError):
        return None


def _signature(signed: str, key: bytes) -> str:
    return _encoded(hmac.digest(key, signed.encode(), "sha256"))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
