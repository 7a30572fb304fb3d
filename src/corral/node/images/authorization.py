"""HTTP authentication of registries: challenges and credentials.  No I/O.

RFC 9110 section 11 has the grammar, the distribution project's token specification the semantics.
"""

import base64
import re
from dataclasses import dataclass, field

import msgspec

_PARAMETER = re.compile(r'([A-Za-z0-9_]{1,32})=(?:"((?:[^"\\]|\\.){0,2000})"|([^",\s]{1,2000}))')
_MAX_HEADER = 8000


@dataclass(frozen=True, slots=True)
class Challenge:
    """A ``WWW-Authenticate`` header: ``bearer`` or ``basic``, and its parameters."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


class Token(msgspec.Struct):
    """The response of a token server; either field may have the token."""

    token: str = ""
    access_token: str = ""


def parse_challenge(header: str) -> Challenge:
    """Parse the first challenge of a header; a malformed one has an empty scheme."""
    scheme, _, rest = header[:_MAX_HEADER].strip().partition(" ")
    parameters = {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) or bare
        for name, quoted, bare in _PARAMETER.findall(rest)
    }
    return Challenge(scheme.lower(), parameters)


def basic(user: str, password: str) -> str:
    """Return the ``Authorization`` header of a user and password (RFC 7617)."""
    pair = f"{user}:{password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
