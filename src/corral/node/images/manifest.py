"""Reads what a registry says about an image: which layers, for which platform.  Pure.

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
_MOST_LAYERS = 127  # as Docker has it


class Platform(msgspec.Struct, frozen=True):
    """What an image of an index runs on."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


# Guests are x86-64 machines whatever the host is.
PLATFORM = Platform(os="linux", architecture="amd64")


class Descriptor(msgspec.Struct, rename="camel", frozen=True):
    """Names content by its digest (OCI image specification, descriptor.md)."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, rename="camel", frozen=True):
    """An image, or with ``manifests`` the list of its variants."""

    media_type: str = ""
    schema_version: int = 0
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()


def parse(body: bytes, name: str) -> Manifest:
    """Read a manifest; raises ImageError naming the image."""
    try:
        manifest = decode_as(body, Manifest)
    except msgspec.DecodeError as error:
        raise pull_failed(f"{name}: the registry's manifest is not valid: {error}") from error
    if manifest.schema_version != 2:
        raise pull_failed(
            f"{name}: manifest schema {manifest.schema_version} is not supported",
            "push the image again with a tool of this decade",
        )
    if manifest.layers and manifest.manifests:  # who reads it as which is anybody's guess
        raise pull_failed(f"{name}: the manifest is an image and a list of images at once")
    for each in manifest.layers + manifest.manifests:
        if not _DIGEST.fullmatch(each.digest) or each.size < 0:
            raise pull_failed(f"{name}: the manifest names content as {each.digest[:100]!r}")
    return manifest


def choose(index: Manifest, name: str) -> Descriptor:
    """The variant of an image for the platform of our guests."""
    for each in index.manifests:
        if each.platform == PLATFORM:
            return each
    if len(index.manifests) == 1 and index.manifests[0].platform is None:
        return index.manifests[0]
    offered = ", ".join(str(each.platform) for each in index.manifests[:10] if each.platform)
    raise pull_failed(f"{name}: no image for {PLATFORM}; there is {offered or 'none'}")


def check_layers(manifest: Manifest, name: str, limits: Limits) -> tuple[Descriptor, ...]:
    """The layers, the lowest first, if they are few and small enough."""
    if not manifest.layers:
        raise pull_failed(f"{name}: the image has no layers", "is this a containerDisk?")
    if len(manifest.layers) > _MOST_LAYERS:
        raise pull_failed(f"{name}: {len(manifest.layers)} layers; {_MOST_LAYERS} are allowed")
    total = sum(layer.size for layer in manifest.layers)
    if total > limits.download_bytes:
        raise pull_failed(
            f"{name}: its layers have {total} bytes; {limits.download_bytes} are allowed"
        )
    return manifest.layers
