"""A request to the API and its answer, free of any HTTP library.

The server handles these; the ASGI adapter makes them of sockets, and a client in the same process
makes them directly, so both meet the same authorization, admission and watch semantics.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who asks (authentication.k8s.io UserInfo)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agent: str = ""
    """The program that it is, where that is known: a component of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a connection's client has proved by TLS: an authority of clients says who it is.

    ``begins`` and ``ends`` are seconds since 1970; ``fingerprint`` is SHA-256 in hexadecimal.
    """

    name: str
    groups: tuple[str, ...] = ()
    begins: float
    ends: float
    fingerprint: str


@dataclass(slots=True, kw_only=True)
class Request:
    """One HTTP request: header names are lower case, the query is the raw string.

    Headers that come several times are one, with commas between; those of impersonation with ends
    of lines.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User | None = None
    """Who asks, where that is known already: a client in this process."""
    sender: str = ""
    """As whom is counted what it takes, once that is known."""
    certificate: Certificate | None = None
    """Who opened the connection, where that was shown."""
    address: str = ""
    """Where the connection comes from; empty for a client in this process."""
    cut: Callable[[], None] | None = None
    """Tears the connection down, and what waits to be sent with it; None where there is none."""
    explained: bool = False
    """Whether the audit log is to tell why it was let pass, or not."""
    annotations: dict[str, str] = field(default_factory=dict)
    """What the audit log is to tell of it, besides: notes of those who have a say in it."""


@dataclass(slots=True, kw_only=True)
class Response:
    """One HTTP answer.  A streamed body yields whole lines; closing it ends the request."""

    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | AsyncGenerator[bytes, None] = b""
