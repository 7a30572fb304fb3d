"""Encoded documents with entity tags (RFC 9110)."""

import hashlib
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Tagged:
    """The bytes of a document, and a hash of them."""

    body: bytes
    tag: str

    @classmethod
    def of(cls, body: bytes) -> Self:
        return cls(body, hashlib.sha512(body).hexdigest().upper())
