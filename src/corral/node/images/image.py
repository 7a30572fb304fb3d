"""A disk of the store, under one of its names."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from corral.node.images.access import Access
from corral.node.images.credentials import Credential
from corral.node.images.record import Source
from corral.node.images.reference import Reference, parse


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A disk under one of its names.

    digest: of the disk as it is stored, ``sha256:…``.
    size: what the disk occupies in the store, in bytes; virtual_size: what a guest sees of it.
    file, source, manifest, access: see Record.
    """

    reference: str
    digest: str
    path: Path
    format: str
    size: int
    virtual_size: int
    source: Source
    file: str = ""
    manifest: str = ""
    access: Access = Access()


def may_share(image: Image, name: Reference, fitting: Sequence[Credential]) -> bool:
    """Whether a disk may stand for what another name means, by its manifest alone.

    Anybody's registry can show a manifest that it has no layers of.
    """
    home = parse(image.reference)
    is_same = (home.registry, home.repository) == (name.registry, name.repository)
    return is_same or image.access.allows(fitting)
