"""Users that kube-apiserver names in the headers of requests that it proxies (its "front proxy").

kube-system/extension-apiserver-authentication has the CA of the proxy's client certificate, the
names that it may have, and the names of the headers.
"""

import hashlib
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from urllib.parse import unquote

import msgspec

from corral.api.errors import Unauthorized
from corral.api.object import Key
from corral.api.request import Request, User

CONFIG: Final = Key("kube-system", "extension-apiserver-authentication")
AUTHORITY: Final = "requestheader-client-ca-file"
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_decode: Final = msgspec.json.Decoder(list[str]).decode


@dataclass(frozen=True, kw_only=True)
class FrontProxy:
    """The front proxies that are trusted.

    authority: CA certificates (PEM) of their client certificates; empty if none is trusted.
    names: common names that they may have; any if empty.
    user, uid, group: names of headers, in lower case, the first one that is there counts.
    extra: prefixes of headers, in lower case.
    """

    authority: str = ""
    names: Sequence[str] = ()
    user: Sequence[str] = ()
    uid: Sequence[str] = ()
    group: Sequence[str] = ()
    extra: Sequence[str] = ()
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Self:
        """Return those of the ConfigMap's data.  Raises ValueError, which names the key."""
        return cls(
            authority=data.get(AUTHORITY) or "",
            names=_names(data, "requestheader-allowed-names"),
            user=_headers(data, "requestheader-username-headers"),
            uid=_headers(data, "requestheader-uid-headers"),
            group=_headers(data, "requestheader-group-headers"),
            extra=_headers(data, "requestheader-extra-headers-prefix"),
        )

    @cached_property
    def authorities(self) -> frozenset[str]:
        """The fingerprints of the CA certificates."""
        ders = map(ssl.PEM_cert_to_DER_cert, _PEM.findall(self.authority))
        return frozenset(hashlib.sha256(der).hexdigest() for der in ders)

    def is_user_header(self, name: str) -> bool:
        """Return whether a header, in lower case, names the user, so that each line is a value."""
        names = (*self.user, *self.uid, *self.group)
        return name in names or name.startswith(tuple(self.extra))

    def authenticate(self, request: Request) -> User:
        """Return the user of a request.  Raises Unauthorized.

        The TLS handshake trusts the authorities of earlier configurations, too: this does not.
        """
        certificate = request.certificate
        if certificate is None or self.authorities.isdisjoint(certificate.authorities):
            raise Unauthorized("Unauthorized")
        if self.names and certificate.name not in self.names:
            raise Unauthorized("Unauthorized")
        if not certificate.begins <= self.now() < certificate.ends:
            raise Unauthorized("Unauthorized")
        name = _first(request.headers, self.user)
        if not name:
            raise Unauthorized("Unauthorized")
        groups = _first(request.headers, self.group)
        return User(
            name=name,
            uid=_first(request.headers, self.uid),
            groups=tuple(groups.split("\n")) if groups else (),
            extra=self._extra(request.headers),
        )

    def _extra(self, headers: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
        return {
            unquote(name.removeprefix(prefix)): tuple(value.split("\n"))
            for name, value in headers.items()
            for prefix in self.extra
            if name.startswith(prefix)
        }


def _first(headers: Mapping[str, str], names: Sequence[str]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


def _headers(data: Mapping[str, str], key: str) -> Sequence[str]:
    return [each.lower() for each in _names(data, key)]


def _names(data: Mapping[str, str], key: str) -> Sequence[str]:
    text = data.get(key) or "[]"
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{key} is no list of strings: {error}") from None
