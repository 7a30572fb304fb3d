"""Client of an OCI registry for one image.  With ``transport`` the only user of httpx2.

All content is verified by digest, so that a registry, or a redirect target, can at worst withhold
it.  Plain HTTP is used with loopback registries only; credentials are sent to the registry and to
its token server, never to redirect targets.
"""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import httpx2
import msgspec

from corral.api.encoding import decode_as
from corral.failures import describe
from corral.node.host.destinations import Destinations, Refused
from corral.node.images import authorization, manifest as manifests
from corral.node.images.credentials import Credential
from corral.node.images.error import ImageError, pull_failed
from corral.node.images.examples import substitute_hint
from corral.node.images.limits import Limits
from corral.node.images.manifest import Descriptor, Manifest
from corral.node.images.progress import Meter
from corral.node.images.reference import Reference, is_loopback

if TYPE_CHECKING:
    from corral.node.images.transport import Transport

_DOCKER_HUB = "registry-1.docker.io"
_MAX_DOCUMENT_BYTES = 4 << 20
_MAX_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 30.0
_CHUNK = 1 << 20
_ACCEPT = ", ".join(manifests.MANIFEST_TYPES + manifests.INDEX_TYPES)


@cache
def _trusted() -> ssl.SSLContext:
    """Load the system's CAs, once: that takes tens of milliseconds."""
    return httpx2.create_ssl_context()


def _transport(destinations: Destinations, *, proxies: bool) -> "Transport":
    """Import the transport on demand: it dominates a start's time, and most starts pull nothing."""
    from corral.node.images.transport import Transport  # noqa: PLC0415

    return Transport(_trusted(), destinations, proxies=proxies)


class Sink(Protocol):
    """A partial layer, which a repeated pull resumes."""

    received: int

    def write(self, chunk: bytes) -> None: ...
    def restart(self) -> None: ...
    def sha256(self) -> str: ...


class Denied(ImageError):
    """The registry denies access with these credentials; others may have it."""


class _Interrupted(Exception):
    """The registry or the network failed; a retry may succeed."""

    def __init__(self, message: str, pause_seconds: float = 0) -> None:
        super().__init__(message)
        self.pause_seconds = pause_seconds


class _OutOfRange(_Interrupted):
    """The registry rejected the range: the partial content is not of this layer."""


class Registry:
    """A session for one image: connections and authorization.

    Use as a context manager; methods raise ImageError ``ErrImagePull``.
    """

    def __init__(
        self,
        reference: Reference,
        credential: Credential | None,
        *,
        limits: Limits,
        destinations: Destinations,
    ) -> None:
        self._reference = reference
        self._destinations = destinations
        self._credential = credential
        self._limits = limits
        host = _DOCKER_HUB if reference.registry == "docker.io" else reference.registry
        scheme = "http" if reference.loopback else "https"
        self._base = httpx2.URL(f"{scheme}://{host}/v2/{reference.repository}/")
        self._authorization = ""

    async def __aenter__(self) -> Self:
        stall = self._limits.stall_seconds
        self._http = httpx2.AsyncClient(
            transport=await asyncio.to_thread(
                _transport,
                self._destinations,
                # A proxy of the environment cannot reach a loopback registry.
                proxies=not self._reference.loopback,
            ),
            timeout=httpx2.Timeout(stall, connect=min(_CONNECT_SECONDS, stall)),
            trust_env=False,
        )
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, traceback)

    @property
    def is_anonymous(self) -> bool:
        """True if the registry has required no authorization so far."""
        return not self._authorization

    async def manifest(self) -> tuple[str, Manifest]:
        """Return the reference's digest, and the manifest for our guests' platform."""
        digest, found = await self._manifest(self._reference.version)
        if not found.manifests:
            return digest, found
        chosen = manifests.choose(found, str(self._reference))
        _, found = await self._manifest(chosen.digest)
        if found.manifests:
            raise self._failed("its index holds another index")
        return digest, found

    async def _manifest(self, version: str) -> tuple[str, Manifest]:
        body = await self._document(self._base.join(f"manifests/{version}"))
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if version.startswith("sha256:") and version != digest:
            raise self._failed(f"the manifest {version} has the digest {digest}")
        return digest, manifests.parse(body, str(self._reference))

    async def layer(self, layer: Descriptor, sink: Sink, meter: Meter) -> None:
        """Fetch a layer into a sink, resuming what the sink has."""
        attempt = 0
        while True:
            before = sink.received
            try:
                await self._layer_part(layer, sink, meter)
                break
            except _Interrupted as error:
                if isinstance(error, _OutOfRange):
                    sink.restart()
                attempt = 0 if sink.received > before else attempt + 1
                await self._pause(error, attempt)
        digest = f"sha256:{await asyncio.to_thread(sink.sha256)}"
        if digest != layer.digest:
            sink.restart()
            raise self._failed(f"the layer {layer.digest} has the digest {digest}")

    async def _layer_part(self, layer: Descriptor, sink: Sink, meter: Meter) -> None:
        if layer.size and sink.received == layer.size:
            return
        headers = {"Range": f"bytes={sink.received}-"} if sink.received else {}
        async with self._get(self._base.join(f"blobs/{layer.digest}"), headers) as response:
            if sink.received and not _continues(response, sink.received):
                sink.restart()
            pending = bytearray()
            try:
                async for chunk in response.aiter_raw():
                    pending += chunk
                    if sink.received + len(pending) > layer.size:
                        pending.clear()
                        sink.restart()
                        raise self._failed(f"the layer {layer.digest} is longer than announced")
                    if len(pending) >= _CHUNK:
                        await _store(sink, pending, meter)
            finally:
                # Keep what was received before an error: the next attempt resumes there.
                sink.write(bytes(pending))
                meter.advance(len(pending))
        if sink.received < layer.size:
            raise _Interrupted(f"the layer {layer.digest} was cut short")

    async def _document(self, url: httpx2.URL) -> bytes:
        """Fetch a small document, with retries."""
        attempt = 0
        while True:
            try:
                async with self._get(url, {"Accept": _ACCEPT}) as response:
                    return await self._read(response)
            except _Interrupted as error:
                attempt += 1
                await self._pause(error, attempt)

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_DOCUMENT_BYTES:
                raise self._failed(f"the registry's answer exceeds {_MAX_DOCUMENT_BYTES} bytes")
        return bytes(body)

    async def _pause(self, error: _Interrupted, attempt: int) -> None:
        if attempt >= self._limits.attempts:
            raise self._failed(
                str(error),
                "is the registry up, and the network? without one: "
                f"{substitute_hint(self._reference)}",
            ) from error
        doubled = self._limits.retry_seconds * 2 ** (attempt - 1)
        await asyncio.sleep(min(max(doubled, error.pause_seconds), _MAX_BACKOFF_SECONDS))

    @asynccontextmanager
    async def _get(
        self, url: httpx2.URL, headers: dict[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        """Yield a successful response, after redirects and at most one authorization."""
        authorized = False
        try:
            for _ in range(_MAX_REDIRECTS + 2):
                own = {"Accept-Encoding": "identity"} | headers
                if self._authorization and _same_origin(url, self._base):
                    own["Authorization"] = self._authorization
                async with self._http.stream("GET", url, headers=own) as response:
                    if response.has_redirect_location:
                        url = self._redirected(url, response.headers["location"])
                        continue
                    if response.status_code == 401 and _same_origin(url, self._base):
                        if authorized:
                            raise self._denied()
                        await self._authorize(response)
                        authorized = True
                        continue
                    self._check_status(response)
                    yield response
                    return
            raise self._failed("the registry redirects without end")
        except Refused as error:
            raise self._failed(str(error)) from error
        except httpx2.TransportError as error:
            raise _Interrupted(f"{url.host}: {describe(error)}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed(f"{url.host}: {error}") from error

    def _redirected(self, url: httpx2.URL, location: str) -> httpx2.URL:
        target = url.join(location)
        self._check_secure(target)
        return target

    def _check_secure(self, url: httpx2.URL) -> None:
        local = self._reference.loopback and is_loopback(url.host)
        if url.scheme != "https" and not (url.scheme == "http" and local):
            raise self._failed(f"the registry refers to {url.scheme}://{url.host}, not to https")

    def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status in {200, 206}:
            return
        if status in {401, 403}:
            raise self._denied()
        if status == 404:
            raise self._failed("not found in the registry", "check the name and the tag")
        if status == 416:
            raise _OutOfRange("the registry rejected the range of a layer")
        if status == 429 or status >= 500:
            raise _Interrupted(f"the registry responded {status}", _retry_after(response))
        raise self._failed(f"the registry responded {status}")

    async def _authorize(self, response: httpx2.Response) -> None:
        """Respond to a challenge, the first one or one for an expired token."""
        challenge = authorization.parse_challenge(response.headers.get("www-authenticate", ""))
        if challenge.scheme == "basic" and self._credential:
            self._authorization = self._basic()
        elif challenge.scheme == "bearer":
            self._authorization = f"Bearer {await self._token(challenge)}"
        else:
            raise self._denied()

    async def _token(self, challenge: authorization.Challenge) -> str:
        realm = httpx2.URL(challenge.parameters.get("realm", ""))
        self._check_secure(realm)
        query = {key: challenge.parameters.get(key, "") for key in ("service", "scope")}
        url = realm.copy_merge_params({key: value for key, value in query.items() if value})
        headers = {"Authorization": self._basic()} if self._credential else {}
        async with self._http.stream("GET", url, headers=headers) as response:
            self._check_status(response)
            try:
                decoded = decode_as(await self._read(response), authorization.Token)
            except msgspec.DecodeError as error:
                raise self._failed(f"{realm.host} gave no token") from error
        token = decoded.token or decoded.access_token
        if not token.isascii() or not token.isprintable() or not token:
            raise self._failed(f"{realm.host} gave no token")
        return token

    def _basic(self) -> str:
        assert self._credential is not None
        return authorization.basic(self._credential.username, self._credential.password)

    def _failed(self, cause: str, hint: str = "") -> ImageError:
        return pull_failed(f"failed to pull image {str(self._reference)!r}: {cause}", hint)

    def _denied(self) -> ImageError:
        failed = self._failed(
            "pull access denied: it does not exist or needs credentials",
            "check the name, and containerDisk.imagePullSecret",
        )
        return Denied(failed.reason, failed.message, failed.hint)


async def _store(sink: Sink, pending: bytearray, meter: Meter) -> None:
    chunk = bytes(pending)
    pending.clear()
    await asyncio.to_thread(sink.write, chunk)
    meter.advance(len(chunk))


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _continues(response: httpx2.Response, position: int) -> bool:
    """Report whether a response begins at the position; registries may ignore ``Range``."""
    content_range = response.headers.get("content-range", "")
    return response.status_code == 206 and content_range.startswith(f"bytes {position}-")


def _retry_after(response: httpx2.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() and len(value) < 6 else 0.0
