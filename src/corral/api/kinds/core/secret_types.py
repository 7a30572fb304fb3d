"""Required data of Secrets by their type (core/v1's validation)."""

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
"""The type of Secrets with a long-lived token of a ServiceAccount."""
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
"""The annotation with the name of that ServiceAccount."""
_REDACTED: Final = "<secret contents redacted>"
_LOGINS: Final[Any] = dict | None
"""Logins to registries; Go decodes null as none."""


def faults(secret: Document, old: Document | None) -> Iterator[Cause]:
    """Check that a Secret has the data that its type requires, unless that data is unchanged."""
    if old is None or _checked_parts(secret) != _checked_parts(old):
        yield from _CHECKS.get(secret.get("type", ""), _no_causes)(secret)


def _account_of(secret: Document) -> str:
    """Return the name of the ServiceAccount of a token Secret; empty if it is not set."""
    return (at(secret, "metadata", "annotations") or {}).get(ACCOUNT_NAME) or ""


def _checked_parts(secret: Document) -> tuple[Any, ...]:
    """Return the parts of a Secret that the checks of its type depend on."""
    kind = secret.get("type")
    return kind, secret.get("data") or {}, _account_of(secret) if kind == ACCOUNT_TOKEN else ""


def _no_causes(_secret: Document) -> Iterator[Cause]:
    return iter(())


def _check_account(secret: Document) -> Iterator[Cause]:
    if not _account_of(secret):
        yield required(f"metadata.annotations[{ACCOUNT_NAME}]")


def _requires(*keys: str) -> Callable[[Document], Iterator[Cause]]:
    def check(secret: Document) -> Iterator[Cause]:
        data = secret.get("data") or {}
        return (required(f"data[{key}]") for key in keys if key not in data)

    return check


def _check_user(secret: Document) -> Iterator[Cause]:
    keys = ("username", "password")
    if not any(key in (secret.get("data") or {}) for key in keys):
        yield from _requires(*keys)(secret)


def _check_key(secret: Document) -> Iterator[Cause]:
    if not (secret.get("data") or {}).get("ssh-privatekey"):
        yield required("data[ssh-privatekey]")


def _requires_json(key: str) -> Callable[[Document], Iterator[Cause]]:
    def check(secret: Document) -> Iterator[Cause]:
        encoded = (secret.get("data") or {}).get(key)
        if encoded is None:
            yield required(f"data[{key}]")
            return
        try:
            decode_as(base64.b64decode(encoded), _LOGINS)
        except (msgspec.DecodeError, ValueError) as error:
            yield invalid(f"data[{key}]", _REDACTED, f"is no JSON object: {error}")

    return check


_CHECKS: Final[Mapping[str, Callable[[Document], Iterator[Cause]]]] = {
    ACCOUNT_TOKEN: _check_account,
    "kubernetes.io/dockercfg": _requires_json(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _requires_json(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _check_user,
    "kubernetes.io/ssh-auth": _check_key,
    "kubernetes.io/tls": _requires("tls.crt", "tls.key"),
}
