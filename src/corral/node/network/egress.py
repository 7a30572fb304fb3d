"""The way out: pasta carries what machines send to others as the manager's user.

One for all machines.  It makes the link ``outward`` with a default route in the machine namespace,
where the packet filter gives all packets its address.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from corral.node.network import netlink
from corral.node.network.helper_processes import Helper, launch_able
from corral.node.network.namespace_nft_rules import OUTWARD
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError

PROGRAM: Final = "pasta"
MTU: Final = 1500
START_SECONDS: Final = 1.0
"""So long it may take until its link is there."""


class Outward(Helper):
    """pasta, for a namespace."""

    def __init__(
        self,
        directory: Path,
        namespace: Namespace,
        families: Sequence[int],
        *,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(PROGRAM, directory, self._launch, changed=changed)
        self._namespace = namespace
        self._families = families

    async def look_again(self) -> None:
        """Start it again where its link was removed, which it does not notice."""
        if await self._has_lost_its_link():
            await asyncio.sleep(START_SECONDS)
            if await self._has_lost_its_link():
                await self.end()

    async def _has_lost_its_link(self) -> bool:
        return self.is_running and not await self._namespace.call(_link_is_there)

    async def _launch(self, descriptors: Sequence[int], output: int) -> int:
        if shutil.which(PROGRAM) is None:
            raise NetworkError(
                "machines reach nothing outside: pasta is missing",
                "Install it: apt-get install passt",
            )
        return await launch_able(
            command(self._namespace.descriptor, self._families, root=os.geteuid() == 0),
            descriptors=[*descriptors, self._namespace.descriptor],
            output=output,
        )


def _link_is_there() -> bool:
    with netlink.opened() as link:
        return bool(link.index(OUTWARD))


def command(descriptor: int, families: Sequence[int], *, root: bool) -> list[str]:
    """The program's command for the namespace of a descriptor that it inherits."""
    addresses = ["-a", "169.254.77.2", "-n", "255.255.255.0", "-g", "169.254.77.1"]
    if 6 in families:
        addresses += ["-a", "fd00:10:77::2", "-g", "fd00:10:77::1"]
    return [
        PROGRAM, "--foreground", "--quiet", "--config-net", "--mtu", str(MTU),
        *addresses, *([] if 6 in families else ["--ipv4-only"]),
        "--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none",
        "--ns-ifname", OUTWARD, *(["--runas", "0:0"] if root else []),
        "--netns-only", "--netns", f"/proc/self/fd/{descriptor}",
    ]  # fmt: skip
