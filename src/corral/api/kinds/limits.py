"""Bounds that KubeVirt's schema sets in many places."""

from typing import Annotated

import msgspec

Uint32 = Annotated[int, msgspec.Meta(ge=0, le=4294967295)]
"""KubeVirt's unsigned numbers."""
MOST = msgspec.Meta(max_length=256)
"""How many volumes, disks, networks or interfaces a machine may have."""
