"""Bounds that KubeVirt's schema sets in many places."""

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-2147483648, le=2147483647)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=4294967295)]
"""Numbers as KubeVirt's types bound them."""
MOST = msgspec.Meta(max_length=256)
"""How many volumes, disks, networks or interfaces a machine may have."""
