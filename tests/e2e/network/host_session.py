"""Links to the host that somebody had no time to finish, in a namespace that plays the host."""

import asyncio
import json
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

from corral.node.host.linux_namespaces import CLONE_NEWNET, unshare
from corral.node.network import netlink
from corral.node.network.host_link import HostLink, addresses, alias
from corral.node.network.namespace_nft_rules import HOST_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Netlink

DIRECTORY = Path("/nowhere/corral")


def damages(inside: Namespace) -> dict[str, Callable[[Netlink], None]]:
    """Apply a change to the host while its link is gone or whole."""

    def nameless(link: Netlink) -> None:
        link.delete("corral0")
        link.add_veth("corral0", peer=HOST_LINK, peer_namespace=inside.descriptor)

    def bare(link: Netlink) -> None:
        nameless(link)
        link.change("corral0", alias=alias(DIRECTORY))

    def addressless(link: Netlink) -> None:
        link.delete_address("corral0", addresses(0)[0][0])

    return {
        "gone": lambda link: link.delete("corral0"),
        "without an alias": nameless,
        "without addresses": bare,
        "address removed": addressless,
        "down": lambda link: link.change("corral0", up=False),
    }


async def session() -> dict[str, object]:
    unshare(CLONE_NEWNET)
    with Namespace.create() as inside, Namespace.current() as outside:
        made = HostLink(DIRECTORY, inside, [ip_network("10.250.0.0/16")])

        def state() -> object:
            with netlink.opened() as link:
                found = sorted((one.name, one.is_up) for one in link.links().values())
                return [found, link.addresses("corral0"), link.routes(4)]

        def damage(act: Callable[[Netlink], None]) -> None:
            with netlink.opened() as link:
                act(link)

        await made.ensure()
        whole, saw = await outside.call(state), {}
        for name, act in damages(inside).items():
            await outside.call(damage, act)
            await made.ensure()
            saw[name] = [list(made.problems), await outside.call(state) == whole]
        made.close()
        return saw


if __name__ == "__main__":
    print(json.dumps(asyncio.run(session())))  # noqa: T201
