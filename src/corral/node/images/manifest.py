"""Manifests and indexes of images: parsing, choice of the platform, checks of layers.  No I/O.

Docker's schema 2 and OCI's manifests and indexes have the same fields under different media types.
"""

import re

import msgspec

from corral.api.encoding import decode_as
from corral.node.images.error import pull_failed
from corral.node.images.limits import Limits

MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_LAYERS = 127  # Docker's limit


class Platform(msgspec.Struct, frozen=True):
    """The platform of an image in an index."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


# Guests are x86-64, whatever the host is.
PLATFORM = Platform(os="linux", architecture="amd64")


class Descriptor(msgspec.Struct, rename="camel", frozen=True):
    """A reference to content by digest (OCI image specification, descriptor.md)."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, rename="camel", frozen=True):
    """A manifest, or with ``manifests`` an index of images by platform."""

    media_type: str = ""
    schema_version: int = 0
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()


def parse(body: bytes, name: str) -> Manifest:
    """Parse a manifest.  Raises ImageError, with the image's name."""
    try:
        manifest = decode_as(body, Manifest)
    except msgspec.DecodeError as error:
        raise pull_failed(f"{name}: the registry's manifest is not valid: {error}") from error
    if manifest.schema_version != 2:
        raise pull_failed(
            f"{name}: manifest schema {manifest.schema_version} is not supported",
            "push the image again with a current tool",
        )
    if manifest.layers and manifest.manifests:  # ambiguous: other tools may read it differently
        raise pull_failed(f"{name}: the manifest is an image and a list of images at once")
    for each in manifest.layers + manifest.manifests:
        if not _DIGEST.fullmatch(each.digest) or each.size < 0:
            raise pull_failed(f"{name}: the manifest names content as {each.digest[:100]!r}")
    return manifest


def choose(index: Manifest, name: str) -> Descriptor:
    """Return the image for our guests' platform.  Raises ImageError."""
    for each in index.manifests:
        if each.platform == PLATFORM:
            return each
    if len(index.manifests) == 1 and index.manifests[0].platform is None:
        return index.manifests[0]
    offered = ", ".join(str(each.platform) for each in index.manifests[:10] if each.platform)
    raise pull_failed(f"{name}: no image for {PLATFORM}; there is {offered or 'none'}")


def check_layers(manifest: Manifest, name: str, limits: Limits) -> tuple[Descriptor, ...]:
    """Return the layers, the lowest first.  Raises ImageError for too many or too large ones."""
    if not manifest.layers:
        raise pull_failed(f"{name}: the image has no layers", "is this a containerDisk?")
    if len(manifest.layers) > _MAX_LAYERS:
        raise pull_failed(f"{name}: {len(manifest.layers)} layers; {_MAX_LAYERS} are allowed")
    total = sum(layer.size for layer in manifest.layers)
    if total > limits.download_bytes:
        raise pull_failed(
            f"{name}: its layers have {total} bytes; {limits.download_bytes} are allowed"
        )
    return manifest.layers
