"""The pods' network: what a machine's share of it takes to make, and what it costs its packets.

Set-up is timed as root and without; traffic beside bare taps, guests of the same kind on them, in
the same run and by turns.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile

from tests.demo_guest import demo_disk

from bench.figure import Figure

ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
USERS = {"root": (), "rootless": ORDINARY} if os.geteuid() == 0 else {"rootless": ()}
DIRECTIONS = ("guest → host", "host → guest", "guest → guest")


def measure() -> list[Figure]:
    figures = []
    for user, through in USERS.items():
        samples = _session(through, "setup")["setup"]
        figures.append(Figure(f"set-up of one, {user}", samples, "ms", "≤ 12 ms"))
    disk = str(asyncio.run(demo_disk()))
    traffic = _session(next(iter(USERS.values())), "traffic", disk)
    for direction in DIRECTIONS:
        bare, ours = traffic[f"bare {direction}"], traffic[f"pods {direction}"]
        figures += [
            Figure(f"{direction}, bare tap", bare, "Mbit/s"),
            Figure(f"{direction}, pod network", ours, "Mbit/s"),
            Figure(f"{direction}, ratio", _ratios(ours, bare), "", "≥ 0.9"),
        ]
    bare, ours = traffic["bare connect"], traffic["pods connect"]
    return [
        *figures,
        Figure("connection to a guest, bare tap", bare, "ms"),
        Figure("connection to a guest, pod network", ours, "ms"),
        Figure("connection to a guest, ratio", _ratios(ours, bare)),
    ]


def _ratios(ours: list[float], bare: list[float]) -> list[float]:
    """Of each round, since what else the machine does changes from one to the next."""
    return [one / other for one, other in zip(ours, bare, strict=True)]


def _session(through: tuple[str, ...], *arguments: str) -> dict[str, list[float]]:
    """Run a part of ``network_session``, which enters namespaces for good."""
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as directory:
        command = [*through, sys.executable, "-m", "bench.network_session", directory, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=300, check=True)
    return json.loads(done.stdout)
