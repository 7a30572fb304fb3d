"""Authentication and authorization of a kubelet's clients, delegated to the API server.

As in a kubelet with webhook authorization: a certificate of the cluster's client CA, or a bearer
token with a TokenReview, authenticates the user; a SubjectAccessReview decides whether it may use
the node's API.  Decisions are cached for a short time.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from lightkube.models.authentication_v1 import TokenReview
from lightkube.models.authorization_v1 import SubjectAccessReview
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.encoding import encode
from corral.api.errors import ApiError, Forbidden, Unauthorized
from corral.api.images import HOST_PATHS
from corral.api.object import Document
from corral.api.request import User
from corral.client.client import Client

ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
"""Cache time of decisions (the kubelet's cacheAuthorizedTTL and cacheUnauthorizedTTL)."""
TOKEN_SECONDS: Final = 120.0
"""Cache time of a token's user (the kubelet's authentication.webhook.cacheTTL)."""
MAX_CACHED: Final = 1024
_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_SUBRESOURCES: Final = (
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/containerLogs", "log"),
    ("/logs", "log"),
)
"""Subresources of ``nodes`` by path, as the kubelet authorizes them; other paths are ``proxy``."""


K = TypeVar("K")
V = TypeVar("V")


class _Request(NamedTuple):
    """A user's request to a node: for a subresource, or a path that no subresource stands for."""

    user: str
    groups: tuple[str, ...]
    verb: str
    subresource: str
    path: str = ""

    def attributes(self, node: str) -> Document:
        """Return the attributes of its SubjectAccessReview."""
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        return {
            "resourceAttributes": {
                "verb": self.verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": self.subresource,
                "name": node,
            }
        }

    def __str__(self) -> str:
        resource = f"resource=nodes, subresource={self.subresource}"
        target = f"path={self.path}" if self.path else resource
        return f"user={self.user}, verb={self.verb}, {target}"


class KubeletAuthorization:
    """ASGI middleware that authenticates and authorizes the requests to a kubelet's app."""

    def __init__(
        self,
        app: ASGIApp,
        client: Client,
        node: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._client = client
        self._node = node
        self._now = now
        self._decisions = _Cache[_Request, bool]()
        self._users = _Cache[str, User | None]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/healthz":
            await _answer(200, b"ok", send, websocket=False)
            return
        try:
            await self._admit(scope)
        except ApiError as error:
            websocket = scope["type"] == "websocket"
            await _answer(error.code, encode(error.status()), send, websocket=websocket)
            return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        """Name the user in the scope's ``state``.

        Raises Unauthorized without a valid credential, Forbidden without the permission.
        """
        user = await self._user(scope)
        if user is None:
            raise Unauthorized("Unauthorized")
        method = scope.get("method") or scope.get("state", {}).get("method", "GET")
        verb, path = _VERBS.get(method, "get"), scope["path"]
        if path in HOST_PATHS:
            request = _Request(user.name, user.groups, verb, "", path)
        else:
            request = _Request(user.name, user.groups, verb, subresource_of(path))
        now = self._now()
        allowed = self._decisions.get(request, now)
        if allowed is None:
            allowed = await self._review(user, request)
            ttl = ALLOWED_SECONDS if allowed else DENIED_SECONDS
            self._decisions.put(request, allowed, now + ttl)
        if not allowed:
            raise Forbidden(f"Forbidden ({request})")
        scope["state"] = {**scope.get("state", {}), "user": user.name}

    async def _user(self, scope: Scope) -> User | None:
        certificate = scope.get("state", {}).get("certificate")
        now = self._now()
        if certificate is not None:
            if not certificate.begins <= now < certificate.ends:
                return None
            groups = (*certificate.groups, "system:authenticated")
            return User(name=certificate.name, groups=groups)
        token = _bearer(scope)
        if not token:
            return None
        cached = self._users.get(token, now)
        if cached is None:
            cached = await self._review_token(token)
            if cached is not None:
                self._users.put(token, cached, now + TOKEN_SECONDS)
        return cached

    async def _review_token(self, token: str) -> User | None:
        review = {"metadata": {}, "spec": {"token": token}}
        answer = await self._client.create(TokenReview, review)
        status: Any = answer.status
        if status is None or not status.authenticated or status.user is None:
            return None
        return User(name=status.user.username or "", groups=tuple(status.user.groups or ()))

    async def _review(self, user: User, request: _Request) -> bool:
        review = {
            "metadata": {},
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                **request.attributes(self._node),
            },
        }
        answer = await self._client.create(SubjectAccessReview, review)
        return answer.status is not None and bool(answer.status.allowed)


class _Cache(Generic[K, V]):
    """A bounded cache whose values expire; the oldest ones are evicted first."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        found = self._values.get(key)
        return found[0] if found is not None and found[1] > now else None

    def put(self, key: K, value: V, until: float) -> None:
        self._values[key] = (value, until)
        self._values.move_to_end(key)
        if len(self._values) > MAX_CACHED:
            self._values.popitem(last=False)


def subresource_of(path: str) -> str:
    """Return the subresource of ``nodes`` that a path of the kubelet belongs to."""
    for prefix, subresource in _SUBRESOURCES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return subresource
    return "proxy"


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


async def _answer(status: int, body: bytes, send: Send, *, websocket: bool) -> None:
    kind = "websocket.http.response" if websocket else "http.response"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
