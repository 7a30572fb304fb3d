"""``python -m bench.network_session DIRECTORY setup|traffic [DISK]``: what ``network`` measures."""

import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Interface, ip_address, ip_interface, ip_network
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.real_machine import definition, hypervisor, new_directory

from bench.pods import obtain_rights
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change, Guest
from corral.node.network import antispoof, dhcp, netlink, nft
from corral.node.network.guest_link import open_tap
from corral.node.network.namespaces import Namespace
from corral.node.network.pod_layout import PodNetworkSettings
from corral.node.network.pod_network import PodNetworks

COUNT = 30
GATEWAY = ip_address("10.244.0.1")
SITE = PodNetworkSettings(gateways=(GATEWAY,), ranges=(ip_network("10.244.0.0/16"),))
MIB = 1 << 20
FILE_MIB, TIMES = 4, 24
ROUNDS = 12
PORT = 8000

T = TypeVar("T")


def main(directory: Path, part: str, *disk: str) -> None:
    obtain_rights(directory / "holder")
    work = setup() if part == "setup" else traffic(directory, Path(disk[0]))
    print(json.dumps(asyncio.run(asyncio.wait_for(work, 280))))


@contextlib.contextmanager
def machine_namespace() -> Iterator[Namespace]:
    def furnish() -> None:
        netlink.set_sysctl("ipv4/ip_forward", 1)
        with netlink.opened() as links:
            links.change("lo")
            links.add_address("lo", ip_interface(GATEWAY))

    with Namespace.create() as namespace:
        namespace.run(furnish)
        yield namespace


async def setup() -> dict[str, list[float]]:
    """Milliseconds until each of many networks is there, one after the other."""
    samples = []
    with machine_namespace() as machine:
        networks = PodNetworks(machine, SITE)
        await machine.call(nft.apply, antispoof.machine_rules())
        for number in range(COUNT + 1):
            uid = f"instance-{number}"
            begun = time.perf_counter()
            await networks.attach(uid, instance(uid), [str(GATEWAY + 1 + number)])
            samples.append((time.perf_counter() - begun) * 1e3)
        networks.close()
    return {"setup": samples[1:]}  # the first one imports libraries


def instance(uid: str) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


class Bare:
    """A tap of the machine's namespace, and nothing between it and the guest."""

    def __init__(self, machine: Namespace, number: int, card: str) -> None:
        self.address = f"10.99.{number}.2"
        self._machine = machine
        name, gateway = f"bare{number}", f"10.99.{number}.1"

        def plugged() -> int:
            descriptor = open_tap(name)
            with netlink.opened() as links:
                links.change(name)
                links.add_address(name, ip_interface(f"{gateway}/24"))
            self.responder.open()
            return descriptor

        lease = dhcp.Lease(
            IPv4Interface(f"{self.address}/24"), ip_address(gateway), ip_address(gateway)
        )
        mac = "02:00:00:00:00:99"
        self.responder = dhcp.Responder(dhcp.Link(name, card, mac, lease))
        self.taps = {"default": machine.run(plugged)}
        self.responder.start()

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        return await self._machine.call(function, *arguments)

    def close(self) -> None:
        self.responder.close()
        for descriptor in self.taps.values():
            os.close(descriptor)


async def traffic(directory: Path, disk: Path) -> dict[str, list[float]]:
    """Two guests on taps, two on pods' networks, and rounds in which each has its turn."""
    async with contextlib.AsyncExitStack() as stack:
        machine = stack.enter_context(machine_namespace())
        networks = PodNetworks(machine, SITE)
        stack.callback(networks.close)
        await machine.call(nft.apply, antispoof.machine_rules())
        machines = directory / "machines"
        machines.mkdir()
        qemu = await stack.enter_async_context(hypervisor(machines))
        pairs: dict[str, list[tuple[Guest, str]]] = {"bare": [], "pods": []}
        for kind, number in (("bare", 0), ("pods", 1), ("bare", 2), ("pods", 3)):
            one = definition(new_directory(machines), disk)
            if kind == "bare":
                card = f"02:00:00:00:01:{number:02x}"
                one.vmi.spec.domain.devices.interfaces[0].mac_address = card
                network = Bare(machine, number, card)
                stack.callback(network.close)
                address = network.address
            else:
                address = str(GATEWAY + number)
                network = await networks.attach(one.vmi.metadata.uid, one.vmi, [address])
            guest = await qemu.start(replace(one, network=network))
            stack.push_async_callback(guest.release)
            await guest.resume()
            await up(guest)
            big = f"dd if=/dev/zero of=/srv/www/big bs=1M count={FILE_MIB}"
            assert (await guest.agent.run(["sh", "-c", big])).exit_code == 0
            pairs[kind].append((guest, address))
        await stack.enter_async_context(source(machine))
        return await rounds(machine, pairs)


async def up(guest: Guest) -> None:
    """Wait for an answer of its agent with an address."""
    async for change in guest.changes():
        if change is Change.AGENT_CONNECTED:
            break
    while not (info := await guest.query_guest_info()) or not any(
        card.addresses for card in info.interfaces
    ):
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def source(machine: Namespace) -> AsyncIterator[None]:
    """A server in the machine's namespace."""
    listener = machine.run(socket.create_server, ("", PORT))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        size = FILE_MIB * TIMES * MIB
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        zeros = bytes(MIB)
        for _ in range(FILE_MIB * TIMES):
            writer.write(zeros)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, sock=listener):
        yield


async def rounds(
    machine: Namespace, pairs: dict[str, list[tuple[Guest, str]]]
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        # Who has had the first turn has the second one in the next round.
        for kind in sorted(pairs, reverse=number % 2 == 0):
            (guest, address), (_, other) = pairs[kind]
            host = str(GATEWAY)
            figures = {
                "connect": machine.run(connect_ms, address),
                "guest → host": mbit(await machine.call(fetch, address)),
                "host → guest": mbit(await fetched_by(guest, f"http://{host}:{PORT}/", 1)),
                "guest → guest": mbit(await fetched_by(guest, f"http://{other}/big", TIMES)),
            }
            if number:  # the first round translates the guests' code
                for name, figure in figures.items():
                    samples.setdefault(f"{kind} {name}", []).append(figure)
    return samples


def mbit(seconds: float) -> float:
    return FILE_MIB * TIMES * MIB * 8 / seconds / 1e6


def connect_ms(address: str) -> float:
    """Milliseconds until a guest has answered a connection: the median of many."""
    samples = []
    for _ in range(50):
        begun = time.perf_counter()
        with socket.create_connection((address, 80), 5):
            samples.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(samples)


def fetch(address: str) -> float:
    """Seconds to read the guest's large file as often as it takes."""
    begun = time.perf_counter()
    for _ in range(TIMES):
        with socket.create_connection((address, 80), 30) as connected:
            connected.sendall(b"GET /big HTTP/1.0\r\n\r\n")
            while connected.recv(MIB):
                pass
    return time.perf_counter() - begun


async def fetched_by(guest: Guest, url: str, times: int) -> float:
    """Seconds that a guest took to read something, by its own clock."""
    loop = f"for n in $(seq {times}); do wget -q -O /dev/null {url} || exit 1; done"
    done = await guest.agent.run(["sh", "-c", f"time sh -c '{loop}'"])
    assert done.exit_code == 0, done.errors
    minutes, seconds = re.search(rb"real\s+(\d+)m ([\d.]+)s", done.errors).groups()
    return 60 * int(minutes) + float(seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
