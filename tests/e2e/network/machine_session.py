"""The machine network is made, found again, damaged and mended: a session (``site``)."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

from bench.cluster import free_port

from corral.node.host.process import read_record, runs
from corral.node.network import netlink, nft
from corral.node.network.ingress import HostPort
from corral.node.network.machine_network import MachineNetwork, remove

POD, SERVICE = ip_network("10.206.0.0/16"), ip_network("10.207.0.0/16")
LOOPBACK = ip_address("127.0.0.1")
DIRECTORY = Path(sys.argv[1])
OWN, GUARD = "list table inet corral", "list table inet corral_guard"


def made() -> MachineNetwork:
    return MachineNetwork(DIRECTORY, pod_cidrs=[POD], service_cidrs=[SERVICE])


@asynccontextmanager
async def running(network: MachineNetwork):
    await network.prepare()
    task = asyncio.create_task(network.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        network.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(120):
            while not await condition():
                await asyncio.sleep(0.02)
            return True
    return False


def links() -> set[str]:
    with netlink.opened() as link:
        return set(link.links())


def state() -> list[object]:
    """Return the state that a repair has to restore."""
    with netlink.opened() as link:
        return [
            link.links()["lo"].is_up,
            sorted(str(each) for name in ("lo", "inbound") for each in link.addresses(name)),
            sorted(str(network) for network, _ in link.routes(4) if network.prefixlen == 16),
            present(OWN) + present(GUARD),
            sorted(name for name in link.links() if not name.startswith("pod")),
        ]


def present(listing: str) -> str:
    try:
        return nft.query(listing)
    except netlink.NetworkError:
        return ""


def damages() -> dict[str, Callable[[], None]]:
    def by(act):
        def damage() -> None:
            with netlink.opened() as link:
                act(link)

        return damage

    return {
        "table": lambda: nft.apply("delete table inet corral"),
        "guard": lambda: nft.apply("delete table inet corral_guard"),
        "rules": lambda: nft.apply("flush table inet corral"),
        "everything filtered": lambda: nft.apply("flush ruleset"),
        "address": by(lambda link: link.delete_address("lo", ip_interface(f"{POD[1]}/32"))),
        "route to pods": by(lambda link: link.delete_route(POD)),
        "route to Services": by(lambda link: link.delete_route(SERVICE, link="lo")),
        "loopback": by(lambda link: link.change("lo", up=False)),
        "outward": by(lambda link: link.delete("outward")),
        "inbound": by(lambda link: link.delete("inbound")),
        **({"host": by(lambda link: link.delete("host"))} if os.geteuid() == 0 else {}),
    }


def pid_of(name: str) -> int:
    record = read_record(DIRECTORY / name)
    return record.pid if record is not None and runs(DIRECTORY / name) else 0


def confined(pid: int) -> list[object]:
    """The capabilities that a process has (capabilities(7)), and what it sees of the files."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    mask = int(next(line.split()[1] for line in lines if line.startswith("CapEff")), 16)
    held = [number for number in range(mask.bit_length()) if mask >> number & 1]
    return [held, sorted(each.name for each in Path(f"/proc/{pid}/root").iterdir())]


async def reaches_in(network: MachineNetwork, port: int, target: int) -> bool:
    """Return whether a connection to a port of the host arrives in the namespace."""
    rule = f"insert rule inet corral input tcp dport {target} accept"
    await network.namespace.call(nft.apply, rule)
    listening = await network.bound(ip_address("169.254.78.100"), target)
    with listening:
        listening.listen()
        loop = asyncio.get_running_loop()
        with suppress(OSError, TimeoutError), socket.socket() as client:
            client.setblocking(False)
            async with asyncio.timeout(30):
                await loop.sock_connect(client, ("127.0.0.1", port))
                connection, (source, _) = await loop.sock_accept(listening)
                connection.close()
                return source == "169.254.78.2"
    return False


async def reaches_out(network: MachineNetwork) -> bool:
    """Return whether a connection from the namespace arrives at the host's own address."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.setblocking(False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                with await network.connect(address, server.getsockname()[1]):
                    connection, _ = await loop.sock_accept(server)
                    connection.close()
                return True
    return False


async def kill(network: MachineNetwork, name: str, whole: list[object]) -> bool:
    """Return whether a program that is killed is there again, with all that it does."""
    before = pid_of(name)
    os.kill(before, signal.SIGKILL)

    async def again() -> bool:
        return pid_of(name) not in (0, before) and await network.namespace.call(state) == whole

    return before != 0 and await until(again)


async def session() -> dict[str, object]:
    saw: dict[str, object] = {}
    network = made()
    network.join()
    taken = socket.create_server(("127.0.0.1", 0))
    ports = [free_port(), taken.getsockname()[1]]
    wanted = {HostPort("tcp", LOOPBACK, port): 7000 + n for n, port in enumerate(ports)}
    async with running(network):
        inside = network.namespace
        refused = await network.port_forwarder.set(wanted)
        saw["refused"] = [refused.get(each, "") for each in wanted]
        taken.close()
        saw["freed"] = not await network.port_forwarder.set(wanted)
        saw["problems"] = network.problems()
        saw["out"] = await until(lambda: reaches_out(network))
        saw["in"] = await reaches_in(network, ports[0], 7000)
        if os.geteuid() == 0:
            saw["confined"] = [confined(pid_of(name)) for name in ("inbound", "outward")]
        await inside.call(nft.apply, "flush ruleset")
        links_there = {"lo", "outward", "inbound", *(["host"] if os.geteuid() == 0 else [])}

        async def complete() -> bool:
            tables = [await inside.call(present, each) for each in (OWN, GUARD)]
            return all(tables) and await inside.call(links) == links_there

        saw["complete"] = await until(complete)
        whole = await inside.call(state)

        async def is_whole() -> bool:
            return await inside.call(state) == whole

        saw["killed"] = {
            name: await kill(network, name, whole) for name in ("holder", "outward", "inbound")
        }
        saw["damaged"], saw["mended"] = {}, {}
        for name, damage in damages().items():
            # The event loop stands still meanwhile, lest it be mended before it is seen; what
            # mended the damage before it may still run in a thread.
            saw["damaged"][name] = any(
                inside.run(lambda: damage() or state()) != whole  # noqa: B023
                for _ in range(3)
            )
            saw["mended"][name] = await until(is_whole)
        # A card that was removed is back before the ports that lead to it listen again.
        saw["in again"] = await until(lambda: reaches_in(network, ports[0], 7000))
    pids = [pid_of(name) for name in ("holder", "outward", "inbound")]
    again = made()
    async with running(again):
        saw["kept"] = pids == [pid_of(name) for name in ("holder", "outward", "inbound")]
        saw["same"] = not await again.port_forwarder.set(wanted)
        await again.port_forwarder.set({})
        saw["closed"] = pid_of("inbound") == 0
    os.kill(pid_of("holder"), signal.SIGKILL)
    await remove(DIRECTORY)
    saw["left"] = [name for name in ("holder", "outward", "inbound") if runs(DIRECTORY / name)]
    alias = f"corral {DIRECTORY}"
    saw["links left"] = [
        each.name for each in await asyncio.to_thread(host_links) if each.alias == alias
    ]
    return saw


def host_links() -> list[netlink.Link]:
    with netlink.opened() as link:
        return list(link.links().values())


if __name__ == "__main__":
    print(json.dumps(asyncio.run(session())))  # noqa: T201
