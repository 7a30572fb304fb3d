"""An image as a host offers it to the nodes of other hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from corral.node.images.credentials import Credential
from corral.node.images.image import Source

SECRETS_HEADER: Final = "corral-pull-secrets"
"""Proofs of credentials that match the image, see ``secret_proofs``."""


@dataclass(frozen=True, slots=True)
class RequestedImage:
    """An image to copy: its name, a containerDisk's path, matching credentials."""

    reference: str
    file: str
    credentials: Sequence[Credential]


class Offer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An image that another host has; the fields are those of Image.

    secret: the proof that permits it, or the hash that was proven by it; empty if everyone may have
    it.
    """

    digest: str
    size: int
    format: Literal["raw", "qcow2"]
    virtual_size: int
    source: Source
    manifest: str = ""
    secret: str = ""

    def satisfies(self, policy: str) -> bool:
        """Report whether an imagePullPolicy permits the image without a registry."""
        return self.source != "pull" or policy == "IfNotPresent"
