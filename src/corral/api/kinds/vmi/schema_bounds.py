"""Bounds of numbers and lists in KubeVirt's schema."""

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-2147483648, le=2147483647)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=4294967295)]
MOST = msgspec.Meta(max_length=256)
"""The most volumes, disks, networks or interfaces of a VMI."""
