"""What the types of Secrets that Kubernetes knows have to hold (core/v1's validation)."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import invalid, required
from corral.api.object import Document

ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 (no token)
"""The type of Secrets in which ServiceAccounts have a token that lasts."""
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
"""The annotation that says whose token is wanted."""
_REDACTED: Final = "<secret contents redacted>"


def faults(secret: Document) -> Iterator[Cause]:
    """What a Secret lacks of what its type asks for."""
    yield from _OF_TYPES.get(secret.get("type", ""), _nothing)(secret)


def _nothing(_secret: Document) -> Iterator[Cause]:
    return iter(())


def _account(secret: Document) -> Iterator[Cause]:
    if not (at(secret, "metadata", "annotations") or {}).get(ACCOUNT_NAME):
        yield required(f"metadata.annotations[{ACCOUNT_NAME}]")


def _all_of(*keys: str) -> Callable[[Document], Iterator[Cause]]:
    def missing(secret: Document) -> Iterator[Cause]:
        data = secret.get("data") or {}
        return (required(f"data[{key}]") for key in keys if key not in data)

    return missing


def _user(secret: Document) -> Iterator[Cause]:
    keys = ("username", "password")
    if not any(key in (secret.get("data") or {}) for key in keys):
        yield from _all_of(*keys)(secret)


def _json_in(key: str) -> Callable[[Document], Iterator[Cause]]:
    def unread(secret: Document) -> Iterator[Cause]:
        encoded = (secret.get("data") or {}).get(key)
        if encoded is None:
            yield required(f"data[{key}]")
            return
        try:
            msgspec.json.decode(base64.b64decode(encoded), type=dict)
        except (msgspec.DecodeError, binascii.Error) as error:
            yield invalid(f"data[{key}]", _REDACTED, f"is no JSON object: {error}")

    return unread


_OF_TYPES: Final[Mapping[str, Callable[[Document], Iterator[Cause]]]] = {
    ACCOUNT_TOKEN: _account,
    "kubernetes.io/dockercfg": _json_in(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json_in(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _user,
    "kubernetes.io/ssh-auth": _all_of("ssh-privatekey"),
    "kubernetes.io/tls": _all_of("tls.crt", "tls.key"),
}
