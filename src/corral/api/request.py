"""Requests and responses of the API, independent of an HTTP library.

The ASGI adapter makes requests from connections, and a client in the same process makes them
directly, so both have the same authorization, admission and watch semantics.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

USER_HEADERS: Final = ("impersonate-", "x-remote-")
"""Prefixes of the headers that name a user, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The user of a request (authentication.k8s.io UserInfo)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agent: str = ""
    """The user agent of a component of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The verified client certificate of a TLS connection.

    begins, ends: seconds since 1970.
    fingerprint: SHA-256 in hexadecimal.
    authorities: the fingerprints of the certificates that verify it; none in a resumed session.
    """

    name: str
    groups: tuple[str, ...] = ()
    begins: float
    ends: float
    fingerprint: str
    authorities: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Request:
    """An HTTP request: header names are lower case, the query is the raw string.

    Repeated headers are joined with commas; those that name users, with newlines.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User | None = None
    """The component of this process that sends the request; None for a client outside.

    A component needs no credentials.  No part of a request from outside sets this.
    """
    sender: str = ""
    """The user for whose share of the server's resources it counts; "" before authentication."""
    certificate: Certificate | None = None
    """The client certificate of the connection, if any."""
    address: str = ""
    """The address of the client; "" for a client in this process."""
    abort: Callable[[], None] | None = None
    """Aborts the connection with what is queued for it; None if there is none."""
    explained: bool = False
    """True if the audit log records the reason of the authorization decision."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of the audit event, by admission plugins and webhooks."""

    @property
    def is_in_process(self) -> bool:
        """True if a component of this process sends it: no queue, limit or deadline applies."""
        return self.user is not None

    def is_component(self, user: User) -> bool:
        """Report whether a user is the component that sends the request, with its fixed rights.

        By identity: neither a user that the component impersonates nor one outside with the same
        name is the same object.
        """
        return user is self.user


@dataclass(slots=True, kw_only=True)
class Response:
    """An HTTP response.  A streamed body yields whole lines; closing it ends the request."""

    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | AsyncGenerator[bytes, None] = b""
