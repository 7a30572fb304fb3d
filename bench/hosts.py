"""Guests of two hosts, and a cluster of many hosts.

Throughput is that of one TCP connection between two guests: on one host, and across two, in turns,
beside what the wire between the hosts carries without guests: bare, and through a VXLAN of the
kernel with no firewall or policy on it.  Then hosts with simulated machines join one manager.
"""

import contextlib
import multiprocessing
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import until
from tests.hosts import HOLLOW, Host, Site, site

from bench.boot import demo_disk
from bench.cluster import cpu_seconds, memory_mib, replica_set
from bench.figure import Figure
from bench.join import until_ready

HOSTS = int(os.environ.get("CORRAL_BENCH_HOSTS", "50"))
JOIN_AT_ONCE = 2
IDLE_SECONDS = 60.0
ROUNDS = 5
FILE_MIB, TIMES = 4, 24
MIB = 1 << 20
WIRE_MIB = 1024
PORT = 5201
SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"


def measure() -> list[Figure]:
    return [*throughput(), *many()]


def throughput() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as name, site(Path(name), 2) as made:
        start_guests(made)
        near, far = pairs(made)
        samples: dict[str, list[float]] = {}
        with bare_vxlan(made.hosts[0], made.hosts[1]) as (_, there):
            for number in range(ROUNDS + 1):
                figures = {
                    "near": between_guests(made, *near),
                    "far": between_guests(made, *far),
                    "wire": between_hosts(*made.hosts, made.hosts[1].address),
                    "vxlan": between_hosts(*made.hosts, there),
                }
                if number:  # the first round translates the guests' code
                    for what, figure in figures.items():
                        samples.setdefault(what, []).append(figure)
    ratios = [one / other for one, other in zip(samples["far"], samples["near"], strict=True)]
    return [
        Figure("guest → guest, one host", samples["near"], "Mbit/s"),
        Figure("guest → guest, two hosts", samples["far"], "Mbit/s"),
        Figure("guest → guest, two hosts beside one", ratios, "", "≥ 0.9"),
        Figure("host → host, the bare wire", samples["wire"], "Mbit/s"),
        Figure("host → host, VXLAN of the kernel alone", samples["vxlan"], "Mbit/s"),
    ]


def start_guests(made: Site) -> None:
    """Run two guests on each of two hosts, until they serve and their agents run commands."""
    demo_disk(made.first.directory)  # outside the host, which has no way to Debian's archive
    made.up("--boots", "1")
    made.join(made.hosts[1], "--boots", "1")
    until_ready(made, {host.name for host in made.hosts})
    document = replica_set("speed", 4)
    spec = document["spec"]["template"]["spec"]
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["readinessProbe"] = {"httpGet": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 20}
    made.api.one.call("POST", SET, document)
    made.api.one.settle(SET, 4, [])
    for pod in made.api.items("pods"):
        big = f"dd if=/dev/zero of=/srv/www/big bs=1M count={FILE_MIB}"
        name = pod["metadata"]["name"]
        command = ("exec", name, "--", "sh", "-c", big)
        until("the agent runs a command", lambda c=command: "records out" in in_guest(made, *c))


def in_guest(made: Site, *words: str) -> str:
    return made.first.kubectl(*words, check=False)


def pairs(made: Site) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the pod that reads and the address that it reads from: on one host, and on two."""
    of_host: dict[str, list[tuple[str, str]]] = {host.name: [] for host in made.hosts}
    for pod in made.api.items("pods"):
        one = pod["metadata"]["name"], pod["status"]["podIP"]
        of_host[pod["spec"]["nodeName"]].append(one)
    (reader, _), (_, near) = of_host["host1"]
    return (reader, near), (reader, of_host["host2"][0][1])


def between_guests(made: Site, reader: str, address: str) -> float:
    """Mbit/s at which a guest reads from another, by its own clock."""
    url = f"http://{address}/big"
    loop = f"for n in $(seq {TIMES}); do wget -q -O /dev/null {url} || exit 1; done"
    said = made.first.kubectl("exec", reader, "--", "sh", "-c", f"time sh -c '{loop}'")
    found = re.search(r"real\s+(\d+)m ([\d.]+)s", said)
    assert found, said
    minutes, seconds = found.groups()
    return FILE_MIB * TIMES * MIB * 8 / (60 * int(minutes) + float(seconds)) / 1e6


def between_hosts(reader: Host, source: Host, address: str) -> float:
    """Mbit/s of one TCP connection between two hosts' network namespaces."""
    listening = source.listen(address, PORT)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(listening,))
    process.start()
    listening.close()
    received = 0
    begun = time.perf_counter()
    with reader.connect(address, PORT) as connection:
        while chunk := connection.recv(MIB):
            received += len(chunk)
    seconds = time.perf_counter() - begun
    process.join()
    assert received == WIRE_MIB * MIB
    return received * 8 / seconds / 1e6


def _send(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    zeros = bytes(MIB)
    with connection:
        for _ in range(WIRE_MIB):
            connection.sendall(zeros)


@contextlib.contextmanager
def bare_vxlan(one: Host, other: Host) -> Iterator[tuple[str, str]]:
    """A VXLAN between two hosts for the block, as ip(8) makes it; yields its two addresses."""
    addresses = ("192.168.77.1", "192.168.77.2")
    hosts = ((one, other, addresses[0]), (other, one, addresses[1]))
    for host, peer, address in hosts:
        # On another port than corral's, which the kernel shares between devices of one namespace.
        device = ("type", "vxlan", "id", "77", "dstport", "4789", "remote", peer.address)
        _ip(host, "link", "add", "bare0", *device, "local", host.address)
        _ip(host, "address", "add", f"{address}/24", "dev", "bare0")
        _ip(host, "link", "set", "bare0", "up")
    try:
        yield addresses
    finally:
        for host, _, _ in hosts:
            _ip(host, "link", "delete", "bare0")


def _ip(host: Host, *words: str) -> None:
    subprocess.run(["ip", "-n", host.namespace, *words], check=True)


def many() -> list[Figure]:
    """Join many hosts with simulated machines, a few at a time."""
    prefix = tempfile.TemporaryDirectory(prefix="corral-bench.")
    with prefix as name, site(Path(name), HOSTS + 1) as made:
        made.up(*HOLLOW, "--no-network")
        words, joining = made.join_words, made.hosts[1:]
        begun = time.perf_counter()
        with ThreadPoolExecutor(JOIN_AT_ONCE) as threads:
            list(threads.map(lambda host: host.corral(*words, "--detach", *HOLLOW), joining))
            until_ready(made, {host.name for host in joining})
        ready = time.perf_counter() - begun
        time.sleep(IDLE_SECONDS / 3)  # the last ones' first lists and samples
        usage = [_idle_percent(made.first.pid) for _ in range(3)]
        memory = [memory_mib(host.pid) for host in joining]
        return [
            Figure(f"{HOSTS} hosts join → all Ready", [ready], "s"),
            Figure(f"CPU of the server, idle, {HOSTS} nodes", usage, "%"),
            Figure(f"memory of the server, {HOSTS} nodes", [memory_mib(made.first.pid)], "MiB"),
            Figure(f"memory of a node's process, of {HOSTS}", memory, "MiB", "≤ 60 MiB"),
        ]


def _idle_percent(pid: int) -> float:
    """CPU of a process over a minute."""
    before, begun = cpu_seconds(pid), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return 100 * (cpu_seconds(pid) - before) / (time.perf_counter() - begun)
