"""Credentials of browsers' websockets, which can send no header: a token among the subprotocols.

As in kube-apiserver the token is in ``base64url.bearer.authorization.k8s.io.TOKEN``, in base64url
without padding, and beside it is the subprotocol that the client speaks, which alone is accepted.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from corral.api.errors import Unauthorized

BEARER: Final = "base64url.bearer.authorization.k8s.io."


def with_authorization(scope: Scope) -> Scope:
    """Return a websocket's scope with the token of its subprotocols in ``authorization``.

    The subprotocol of the token is taken out: it is neither accepted nor forwarded.  An
    ``authorization`` that the client sent itself counts.  Raises Unauthorized.
    """
    offered = scope.get("subprotocols") or []
    tokens = [each for each in offered if each.startswith(BEARER)]
    if not tokens:
        return scope
    others = [each for each in offered if not each.startswith(BEARER)]
    token = _token(tokens, others)
    headers = [each for each in scope["headers"] if each[0] != b"sec-websocket-protocol"]
    headers.append((b"sec-websocket-protocol", ", ".join(others).encode("latin-1", "replace")))
    if not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", b"Bearer " + token))
    return {**scope, "subprotocols": others, "headers": headers}


def _token(tokens: Sequence[str], others: Sequence[str]) -> bytes:
    if len(tokens) > 1:
        raise Unauthorized("multiple bearer token protocols are specified: send one")
    if not others:
        raise Unauthorized(
            "missing additional subprotocols: a bearer token in a subprotocol needs another "
            "beside it, which the websocket then speaks"
        )
    encoded = tokens[0].removeprefix(BEARER)
    try:
        token = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        token.decode()
    except (ValueError, binascii.Error):
        raise Unauthorized("invalid base64url encoded bearer token protocol") from None
    if not token or any(byte < 0x21 or byte == 0x7F for byte in token):
        raise Unauthorized("invalid bearer token in a subprotocol: it has blanks, or is empty")
    return token


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sends a request for a page that another server gave.

    Its ``origin`` names another host than the request.  A proxy that names the client
    (``x-forwarded-for``) may serve the page under its own host; pages cannot set that header.
    """
    origin = headers.get("origin", "")
    if not origin or "x-forwarded-for" in headers:
        return False
    return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
