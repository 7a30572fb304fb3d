"""A client of another host's image store, see ``corral.node.images.serving``.

Disks are verified by their digest.  What a reference means is the other host's word: nodes of one
cluster trust each other with it, as they trust their registries.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlencode

from msgspec.structs import replace

from corral.api.encoding import decode_as
from corral.api.images import IMAGES_PATH
from corral.node.images.access import credential_hash
from corral.node.images.error import pull_failed
from corral.node.images.offer import SECRETS_HEADER, Offer, RequestedImage
from corral.node.images.progress import Meter
from corral.node.images.secret_proofs import SecretProofs

Download = Callable[
    [str, Mapping[str, str]], AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]
]
"""Requests a path with headers, and yields status and content.  Raises ApiError."""
_MAX_OFFER_BYTES: Final = 1 << 16
_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK)


class Peer:
    """The image store of another host.

    ``name`` names the host in messages; ``user`` is as whom ``download`` authenticates, and ``now``
    returns seconds since 1970: proofs of credentials are made for that user at that time.
    ``download`` requests other paths of the host, too.
    """

    def __init__(
        self,
        download: Download,
        name: str = "the first host",
        *,
        user: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self.download = download
        self.name = name
        self._user = user
        self._now = now

    async def find(self, image: RequestedImage) -> Offer | None:
        """Return the image of a name, if it is there for these credentials.

        Raises ApiError and msgspec.DecodeError.
        """
        proofs = SecretProofs(self._user, image.reference, self._now())
        path, headers = _request(image, proofs)
        async with self.download(path, headers) as (status, content):
            if status != 200:
                return None
            body = await beginning(content, _MAX_OFFER_BYTES + 1)
        if len(body) > _MAX_OFFER_BYTES:
            raise pull_failed(f"{self.name} answers with too much")
        offer = decode_as(body, Offer)
        hashes = {proofs.prove(each): each for each in map(credential_hash, image.credentials)}
        return replace(offer, secret=hashes.get(offer.secret, offer.secret))

    async def fetch(self, image: RequestedImage, offer: Offer, target: Path, meter: Meter) -> None:
        """Write the disk of an offer to a new file.  Raises ImageError, ApiError and OSError."""
        proofs = SecretProofs(self._user, image.reference, self._now())
        path, headers = _request(image, proofs, offer.digest)
        sha256, received = hashlib.sha256(), 0
        with target.open("wb") as disk:
            async with self.download(path, headers) as (status, content):
                if status != 200:
                    raise pull_failed(
                        f"{self.name} does not send {image.reference}: status {status}"
                    )
                async for chunk in gathered(content):
                    received += len(chunk)
                    if received > offer.size:
                        break
                    await asyncio.to_thread(_write, disk, chunk, sha256)
                    meter.advance(len(chunk))
            disk.truncate(received)
        if received != offer.size or f"sha256:{sha256.hexdigest()}" != offer.digest:
            raise pull_failed(
                f"{self.name} sends another disk of {image.reference} than {offer.digest}"
            )


def _request(
    image: RequestedImage, proofs: SecretProofs, digest: str = ""
) -> tuple[str, dict[str, str]]:
    query = {"reference": image.reference, "file": image.file}
    if digest:
        query["digest"] = digest
    secrets = proofs.header(map(credential_hash, image.credentials))
    return f"{IMAGES_PATH}?{urlencode(query)}", {SECRETS_HEADER: secrets} if secrets else {}


async def beginning(content: AsyncIterator[bytes], size: int) -> bytes:
    """Return content up to so many bytes; no more of it is read."""
    body = bytearray()
    async for chunk in content:
        body += chunk
        if len(body) >= size:
            break
    return bytes(body[:size])


async def gathered(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield content in larger chunks: each is written by a thread."""
    pending = bytearray()
    async for chunk in content:
        pending += chunk
        if len(pending) >= _CHUNK:
            yield bytes(pending)
            pending.clear()
    if pending:
        yield bytes(pending)


def _write(disk: IO[bytes], chunk: bytes, sha256: "hashlib._Hash") -> None:
    sha256.update(chunk)
    write_sparse(disk, chunk)


def write_sparse(disk: IO[bytes], chunk: bytes) -> int:
    """Write a chunk, with holes for blocks of zeros; return how many bytes have no hole."""
    written = 0
    for start in range(0, len(chunk), _BLOCK):
        block = chunk[start : start + _BLOCK]
        if block == _ZEROS[: len(block)]:
            disk.seek(len(block), os.SEEK_CUR)
        else:
            written += disk.write(block)
    return written
