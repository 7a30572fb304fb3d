"""Egress: pasta forwards what machines send to the outside, as the user of the manager.

One process serves all machines.  It creates the link ``outward`` with a default route in the
machine namespace, where packets are masqueraded behind its address.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from corral.node.network import netlink
from corral.node.network.helper_processes import Helper, launch_with_capabilities
from corral.node.network.namespace_nft_rules import EGRESS_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError

PROGRAM: Final = "pasta"
MTU: Final = 1500
START_SECONDS: Final = 1.0
"""Longest time until its link appears."""


class Egress(Helper):
    """The pasta process of a namespace."""

    def __init__(
        self,
        directory: Path,
        namespace: Namespace,
        families: Sequence[int],
        *,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(PROGRAM, directory, self._launch, on_change=on_change)
        self._namespace = namespace
        self._families = families

    async def resync(self) -> None:
        """Restart pasta if its link was removed, which it does not notice."""
        if await self._has_lost_link():
            await asyncio.sleep(START_SECONDS)
            if await self._has_lost_link():
                await self.end()

    async def _has_lost_link(self) -> bool:
        return self.is_running and not await self._namespace.call(_link_exists)

    async def _launch(self, descriptors: Sequence[int], output: int) -> int:
        if shutil.which(PROGRAM) is None:
            raise NetworkError(
                "machines reach nothing outside: pasta is missing",
                "Install it: apt-get install passt",
            )
        return await launch_with_capabilities(
            command(self._namespace.descriptor, self._families, root=os.geteuid() == 0),
            descriptors=[*descriptors, self._namespace.descriptor],
            output=output,
        )


def _link_exists() -> bool:
    with netlink.opened() as link:
        return bool(link.index(EGRESS_LINK))


def command(descriptor: int, families: Sequence[int], *, root: bool) -> list[str]:
    """Return pasta's command for a namespace, whose descriptor it inherits."""
    addresses = ["-a", "169.254.77.2", "-n", "255.255.255.0", "-g", "169.254.77.1"]
    if 6 in families:
        addresses += ["-a", "fd00:10:77::2", "-g", "fd00:10:77::1"]
    return [
        PROGRAM, "--foreground", "--quiet", "--config-net", "--mtu", str(MTU),
        *addresses, *([] if 6 in families else ["--ipv4-only"]),
        "--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none",
        "--ns-ifname", EGRESS_LINK, *(["--runas", "0:0"] if root else []),
        "--netns-only", "--netns", f"/proc/self/fd/{descriptor}",
    ]  # fmt: skip
