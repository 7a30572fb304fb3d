"""What a store writes down of an image name."""

from typing import Literal

import msgspec

from corral.node.images.access import Access

Source = Literal["import", "pull"]


class Record(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What is written down of an image name.

    file: which file of the container image the disk is; empty for the only one in ``/disk``.
    disk: the disk's file name.
    manifest: the digest by which the registry knows the image; empty when imported.
    access: whom it is there for; everyone, where it is from before that was written down.
    """

    reference: str
    file: str = ""
    disk: str = ""
    format: str = ""
    virtual_size: int = 0
    source: Source
    manifest: str = ""
    access: Access = Access()
