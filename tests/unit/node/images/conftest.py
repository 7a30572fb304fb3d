"""A registry that misbehaves on demand, and layers of any shape."""

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from corral.node.images.limits import Limits

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
Files = dict[str, bytes | None]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def disk(sectors: int = 8, fill: bytes = b"d") -> bytes:
    """A raw disk."""
    return fill * (512 * sectors)


def tar(files: Files, **attributes: object) -> bytes:
    """A plain layer; a name with no content is a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            info.type = tarfile.REGTYPE if content is not None else tarfile.DIRTYPE
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


@dataclass
class Fault:
    """How the next answers go wrong; each count is used up."""

    cut_after: list[int] = field(default_factory=list)  # of a blob's body, per answer
    statuses: list[int] = field(default_factory=list)  # instead of an answer
    corrupt: bool = False  # blobs
    ignore_range: bool = False
    refuse_range: bool = False
    gate: asyncio.Event | None = None  # blobs wait for it
    manifest_gates: dict[str, asyncio.Event] = field(default_factory=dict)  # by path, likewise
    redirect: str = ""  # where blobs are said to be


class FakeRegistry:
    """An OCI distribution server of one connection an answer."""

    def __init__(self) -> None:
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.fault = Fault()
        self.scheme = ""  # "basic" or "bearer": who asks must prove who he is
        self.user = "user:secret"
        self.realm = ""  # of the token server, where it is not this one
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self.waiting = asyncio.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add_blob(self, content: bytes) -> dict[str, object]:
        self.blobs[digest_of(content)] = content
        return {"digest": digest_of(content), "size": len(content)}

    def add(
        self,
        repository: str,
        *layers: bytes,
        pack: Callable[[bytes], bytes] = gzip.compress,
        tag: str = "latest",
    ) -> str:
        """Put an image in; answer the name to pull it by."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add_blob(b"{}"),
            "layers": [self.add_blob(pack(layer)) for layer in layers],
        }
        self.add_manifest(repository, tag, manifest)
        return f"{self.address}/{repository}:{tag}"

    def add_manifest(self, repository: str, tag: str, manifest: dict[str, object]) -> str:
        body = json.dumps(manifest).encode()
        kind = str(manifest.get("mediaType", MANIFEST))
        for version in (tag, digest_of(body)):
            self.manifests[f"/v2/{repository}/manifests/{version}"] = (kind, body)
        return digest_of(body)

    def count(self, part: str) -> int:
        return sum(part in request for request in self.requests)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeRegistry"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.split("\r\n")
            headers = {
                key.lower(): value for key, _, value in (each.partition(": ") for each in rest)
            }
            target = line.split(" ")[1]
            self.requests.append(target)
            self.authorizations.append(headers.get("authorization", ""))
            await self._answer(writer, target, headers)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, target: str, headers: dict[str, str]
    ) -> None:
        path = target.partition("?")[0]
        if self.fault.statuses:
            return await send(writer, self.fault.statuses.pop(0), b"")
        if path == "/token":
            return await self._token(writer, headers)
        if not self._allowed(headers):
            realm = self.realm or f"http://{self.address}/token"
            bearer = f'Bearer realm="{realm}",service="fake",scope="pull"'
            challenge = bearer if self.scheme == "bearer" else 'Basic realm="fake"'
            return await send(writer, 401, b"", {"WWW-Authenticate": challenge})
        if path in self.manifests:
            kind, body = self.manifests[path]
            if gate := self.fault.manifest_gates.get(path):
                self.waiting.set()
                await gate.wait()
            return await send(writer, 200, body, {"Content-Type": kind})
        if self.fault.redirect and "/blobs/" in path:
            return await send(writer, 307, b"", {"Location": self.fault.redirect})
        blob = self.blobs.get(path.rpartition("/")[2])
        if blob is None:
            return await send(writer, 404, b"{}")
        return await self._blob(writer, blob, headers)

    async def _blob(
        self, writer: asyncio.StreamWriter, blob: bytes, headers: dict[str, str]
    ) -> None:
        fault = self.fault
        self.waiting.set()
        if fault.gate:
            await fault.gate.wait()
        body = bytes(len(blob)) if fault.corrupt else blob
        status, extra = 200, {}
        requested = headers.get("range", "")
        if requested and fault.refuse_range:
            return await send(writer, 416, b"")
        if requested and not fault.ignore_range:
            start = int(requested.removeprefix("bytes=").rstrip("-"))
            status, extra = 206, {"Content-Range": f"bytes {start}-{len(blob) - 1}/{len(blob)}"}
            body = body[start:]
        cut = fault.cut_after.pop(0) if fault.cut_after else len(body)
        return await send(writer, status, body, extra, cut)

    def _allowed(self, headers: dict[str, str]) -> bool:
        basic = "Basic " + base64.b64encode(self.user.encode()).decode()
        required = {"": "", "basic": basic, "bearer": "Bearer let-me-in"}[self.scheme]
        return not required or headers.get("authorization") == required

    async def _token(self, writer: asyncio.StreamWriter, headers: dict[str, str]) -> None:
        basic = "Basic " + base64.b64encode(self.user.encode()).decode()
        if headers.get("authorization") != basic:
            return await send(writer, 401, b"{}")
        return await send(writer, 200, json.dumps({"token": "let-me-in"}).encode())


async def send(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    cut: int | None = None,
) -> None:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body[:cut])
    await writer.drain()


def qcow2_header(**changes: int) -> bytes:
    """A version 3 header of an empty 1 MiB disk, with fields of your own."""
    fields = {
        "magic": 0x514649FB, "version": 3, "backing": 0, "backing_length": 0, "bits": 16,
        "size": 1 << 20, "crypt": 0, "l1_entries": 1, "l1": 3 << 16, "refcounts": 1 << 16,
        "refcount_clusters": 1, "snapshots": 0, "snapshot_table": 0, "incompatible": 0,
        "compatible": 0, "autoclear": 0, "refcount_order": 4, "length": 104,
    } | changes  # fmt: skip
    return struct.pack(">IIQIIQIIQQIIQQQQII", *fields.values())


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry().running() as server:
        yield server


@pytest.fixture
def limits() -> Limits:
    """Quick to try again."""
    return Limits(attempts=3, retry_seconds=0.001, stall_seconds=60, pull_seconds=60)


@pytest.fixture(scope="session")
def shapes() -> "type[Shapes]":
    return Shapes


class Shapes:
    """What tests build images of."""

    tar = staticmethod(tar)
    disk = staticmethod(disk)
    digest_of = staticmethod(digest_of)
    qcow2_header = staticmethod(qcow2_header)
