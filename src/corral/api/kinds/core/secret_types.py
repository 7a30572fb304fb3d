"""What the types of Secrets that Kubernetes knows have to hold (core/v1's validation)."""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_as
from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import invalid, required
from corral.api.object import Document

ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 (no token)
"""The type of Secrets in which ServiceAccounts have a token that lasts."""
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
"""The annotation that says whose token is wanted."""
_REDACTED: Final = "<secret contents redacted>"
_LOGINS: Final[Any] = dict | None
"""Logins to registries: Go takes null for none."""


def faults(secret: Document, old: Document | None) -> Iterator[Cause]:
    """What a Secret lacks of what its type asks for; what was stored so is let be."""
    if old is None or _judged(secret) != _judged(old):
        yield from _OF_TYPES.get(secret.get("type", ""), _nothing)(secret)


def _account_of(secret: Document) -> str:
    """The name of the account whose token is wanted; empty where it is not said."""
    return (at(secret, "metadata", "annotations") or {}).get(ACCOUNT_NAME) or ""


def _judged(secret: Document) -> tuple[Any, ...]:
    """All of a Secret that its type asks about."""
    kind = secret.get("type")
    return kind, secret.get("data") or {}, _account_of(secret) if kind == ACCOUNT_TOKEN else ""


def _nothing(_secret: Document) -> Iterator[Cause]:
    return iter(())


def _account(secret: Document) -> Iterator[Cause]:
    if not _account_of(secret):
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


def _key(secret: Document) -> Iterator[Cause]:
    if not (secret.get("data") or {}).get("ssh-privatekey"):
        yield required("data[ssh-privatekey]")


def _json_in(key: str) -> Callable[[Document], Iterator[Cause]]:
    def unread(secret: Document) -> Iterator[Cause]:
        encoded = (secret.get("data") or {}).get(key)
        if encoded is None:
            yield required(f"data[{key}]")
            return
        try:
            decode_as(base64.b64decode(encoded), _LOGINS)
        except (msgspec.DecodeError, ValueError) as error:
            yield invalid(f"data[{key}]", _REDACTED, f"is no JSON object: {error}")

    return unread


_OF_TYPES: Final[Mapping[str, Callable[[Document], Iterator[Cause]]]] = {
    ACCOUNT_TOKEN: _account,
    "kubernetes.io/dockercfg": _json_in(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json_in(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _user,
    "kubernetes.io/ssh-auth": _key,
    "kubernetes.io/tls": _all_of("tls.crt", "tls.key"),
}
