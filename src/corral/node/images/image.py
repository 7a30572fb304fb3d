"""A disk of the store, under one of its names."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from corral.node.images.access import Access
from corral.node.images.credentials import Credential
from corral.node.images.image_record import Record, Source
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

    def is_fixed(self, policy: str) -> bool:
        """Whether no registry is asked for it under an imagePullPolicy."""
        return self.source == "import" or policy != "Always"

    @classmethod
    def of(cls, record: Record, disk: Path, size: int) -> "Image":
        """What a record says of a disk that occupies so many bytes."""
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


def may_share(image: Image, name: Reference, fitting: Sequence[Credential]) -> bool:
    """Whether a disk may stand for what another name means, by its manifest alone.

    Anybody's registry can show a manifest that it has no layers of.
    """
    home = parse(image.reference)
    is_same = (home.registry, home.repository) == (name.registry, name.repository)
    return is_same or image.access.allows(fitting)
