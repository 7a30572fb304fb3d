"""Images of the store: the record of a name on disk, and the image that it describes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from corral.node.images.access import Access
from corral.node.images.credentials import Credential
from corral.node.images.reference import Reference, parse

Source = Literal["import", "pull", "copy"]
"""Origin of an image: ``copy`` is that of an import, which another host of the cluster has."""


class Record(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The record of an image name.

    file: the disk's path in the container image; empty for the only one in ``/disk``.
    disk: the disk's file name.
    manifest: the digest of the image in its registry; empty for imports.
    access: who may use it; everyone for records of versions that did not keep this.
    """

    reference: str
    file: str = ""
    disk: str = ""
    format: str = ""
    virtual_size: int = 0
    source: Source
    manifest: str = ""
    access: Access = Access()


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A stored disk, under one of its names.

    digest: of the stored disk, ``sha256:…``.
    size: allocated bytes in the store; virtual_size: the guest's view.
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

    @property
    def is_whole(self) -> bool:
        """True if the disk replaces the container image, whichever ``path`` is requested."""
        return self.source != "pull"

    def satisfies(self, policy: str) -> bool:
        """Report whether an imagePullPolicy permits the stored image without a registry."""
        return self.source == "import" or policy != "Always"

    @classmethod
    def of(cls, record: Record, disk: Path, size: int) -> "Image":
        """Return the image of a record and its disk; size: allocated bytes."""
        return cls(
            reference=record.reference,
            digest=disk.stem.replace("-", ":"),
            path=disk,
            format=record.format,
            size=size,
            virtual_size=record.virtual_size,
            source=record.source,
            file=record.file,
            manifest=record.manifest,
            access=record.access,
        )


def may_share(image: Image, name: Reference, credentials: Sequence[Credential]) -> bool:
    """Report whether another name with the same manifest may share an image's disk.

    Equal manifests are no proof of access: any registry can serve a manifest without its layers.
    """
    home = parse(image.reference)
    is_same = (home.registry, home.repository) == (name.registry, name.repository)
    return is_same or image.access.allows(credentials)
