"""How a registry asks who we are, and what to answer.  Pure.

RFC 9110 section 11 has the grammar, the distribution project's token specification the meaning.
"""

import base64
import re
from dataclasses import dataclass, field

import msgspec

from corral.node.images.credentials import Credential

_PARAMETER = re.compile(r'([A-Za-z0-9_]{1,32})=(?:"((?:[^"\\]|\\.){0,2000})"|([^",\s]{1,2000}))')
_LONGEST = 8000


@dataclass(frozen=True, slots=True)
class Challenge:
    """A ``WWW-Authenticate`` header: ``bearer`` or ``basic``, and its parameters."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


class Token(msgspec.Struct):
    """A token server's answer; either field may carry the token."""

    token: str = ""
    access_token: str = ""


def parse_challenge(header: str) -> Challenge:
    """Read the first challenge of a header; one that makes no sense has an empty scheme."""
    scheme, _, rest = header[:_LONGEST].strip().partition(" ")
    parameters = {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) or bare
        for name, quoted, bare in _PARAMETER.findall(rest)
    }
    return Challenge(scheme.lower(), parameters)


def basic(credential: Credential) -> str:
    """The ``Authorization`` header of a name and password (RFC 7617)."""
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
