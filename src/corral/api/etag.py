"""Documents as they are sent, with a tag by which clients tell whether theirs is still the last."""

import hashlib
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Tagged:
    """The bytes of a document, and the tag that changes when they do."""

    body: bytes
    tag: str

    @classmethod
    def of(cls, body: bytes) -> Self:
        return cls(body, hashlib.sha512(body).hexdigest().upper())
